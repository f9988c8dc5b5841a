// The host's stream under another name, for tests that change one thing about it.
#pragma once

#include <cstddef>
#include <memory>

#include <lockstep/core/base/device_kind.hpp>
#include <lockstep/core/device/stream.hpp>

#include "core/device/device.hpp"

namespace lockstep::test {

class ForwardingStream : public Stream {
 public:
  DeviceKind kind() const override { return host_.kind(); }
  Buffer allocate(std::size_t bytes) override { return inside(host_).allocate(bytes); }
  Buffer allocate_pinned(std::size_t bytes) override { return inside(host_).allocate_pinned(bytes); }
  void copy(void* to, const void* from, std::size_t bytes) override { host_.copy(to, from, bytes); }
  void fill_zero(void* to, std::size_t bytes) override { host_.fill_zero(to, bytes); }
  std::unique_ptr<Event> record() override { return inside(host_).record(); }
  void wait(const Event& event) override { inside(host_).wait(event); }
  void synchronize() override { host_.synchronize(); }
  std::unique_ptr<Stream> make_sibling() override { return std::make_unique<ForwardingStream>(); }
  bool is_capturing() const override { return host_.is_capturing(); }

 private:
  Stream& host_ = Stream::host();
};

}  // namespace lockstep::test
