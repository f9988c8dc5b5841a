#include "core/base/progress_count.hpp"

#include <atomic>

namespace lockstep::detail {
namespace {

std::atomic<std::uint64_t> pieces_done = 0;

}  // namespace

void count_progress() noexcept {
  pieces_done.fetch_add(1, std::memory_order_relaxed);
}

std::uint64_t progress_count() noexcept {
  return pieces_done.load(std::memory_order_relaxed);
}

}  // namespace lockstep::detail
