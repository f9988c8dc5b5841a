// The CPU as a device.
#include <cstdlib>
#include <cstring>

#include <fmt/format.h>

#include <lockstep/core/base/device_kind.hpp>
#include <lockstep/core/base/error.hpp>
#include <lockstep/core/device/stream.hpp>

#include "core/base/memory_use.hpp"
#include "core/device/device.hpp"
#include "core/device/devices.hpp"

namespace lockstep {
namespace {

Buffer allocate(std::size_t bytes) {
  if (bytes == 0) return {};
  const std::size_t padded = (bytes + Buffer::alignment - 1) / Buffer::alignment * Buffer::alignment;
  void* const data = padded >= bytes ? std::aligned_alloc(Buffer::alignment, padded) : nullptr;
  if (!data) throw DeviceError{fmt::format("no {} bytes of memory are left: {}", bytes, why_no_memory())};
  return {data, bytes, DeviceKind::cpu, std::free};
}

class HostEvent final : public Event {
 public:
  bool done() const override { return true; }
};

class HostStream final : public Stream {
 public:
  DeviceKind kind() const override { return DeviceKind::cpu; }
  Buffer allocate(std::size_t bytes) override { return lockstep::allocate(bytes); }
  Buffer allocate_pinned(std::size_t bytes) override { return allocate_host(bytes); }
  void copy(void* to, const void* from, std::size_t bytes) override {
    if (bytes && to != from) std::memcpy(to, from, bytes);
  }
  void fill_zero(void* to, std::size_t bytes) override {
    if (bytes) std::memset(to, 0, bytes);
  }
  std::unique_ptr<Event> record() override { return std::make_unique<HostEvent>(); }
  void wait(const Event&) override {}
  void synchronize() override {}
  std::unique_ptr<Stream> make_sibling() override { return std::make_unique<HostStream>(); }
  bool is_capturing() const override { return false; }
};

class HostDevice final : public Device {
 public:
  DeviceKind kind() const override { return DeviceKind::cpu; }
  std::string name() const override { return "cpu"; }
  std::unique_ptr<Stream> make_stream() override { return std::make_unique<HostStream>(); }
};

}  // namespace

std::unique_ptr<Device> make_host_device() {
  return std::make_unique<HostDevice>();
}

Stream& Stream::host() {
  static HostStream stream;
  return stream;
}

Buffer allocate_host(std::size_t bytes) {
  Buffer buffer = allocate(bytes);
  if (bytes) std::memset(buffer.data(), 0, bytes);
  return buffer;
}

}  // namespace lockstep
