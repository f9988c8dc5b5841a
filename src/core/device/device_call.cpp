#include "core/device/device_call.hpp"

#include <atomic>

namespace lockstep::detail {
namespace {

// Of the whole process, not of each thread: a thread whose call does not return sooner or later holds up those that
// still make calls.
std::atomic<std::uint64_t> calls_begun = 0;
std::atomic<std::uint64_t> calls_ended = 0;

}  // namespace

DeviceCall::DeviceCall() noexcept {
  calls_begun.fetch_add(1, std::memory_order_relaxed);
}

DeviceCall::~DeviceCall() {
  calls_ended.fetch_add(1, std::memory_order_relaxed);
}

DeviceCalls device_calls() {
  const std::uint64_t ended = calls_ended.load(std::memory_order_relaxed);
  return {calls_begun.load(std::memory_order_relaxed), ended};
}

}  // namespace lockstep::detail
