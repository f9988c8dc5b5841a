// Devices and their memory. A process owns one device. Host and GPU share one interface.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include <lockstep/core/device/stream.hpp>

#include "core/base/parts.hpp"

namespace lockstep {

/// Owns memory on one device and releases it when destroyed. Move-only. Aligned to `alignment` bytes.
class Buffer {
 public:
  static constexpr std::size_t alignment = 256;
  /// Must not throw.
  using Release = std::function<void(void*)>;

  Buffer() = default;
  /// Takes ownership of `data`, which `release` frees.
  Buffer(void* data, std::size_t bytes, DeviceKind kind, Release release)
      : data_{data, std::move(release)}, bytes_{bytes}, kind_{kind} {}

  std::byte* data() const { return static_cast<std::byte*>(data_.get()); }
  std::size_t bytes() const { return data_ ? bytes_ : 0; }
  DeviceKind kind() const { return kind_; }

 private:
  std::unique_ptr<void, Release> data_;
  std::size_t bytes_ = 0;
  DeviceKind kind_ = DeviceKind::cpu;
};

/// A point in a stream's work: inside(stream).record() creates it; inside(stream).wait or the host waits for it.
class Event {
 public:
  virtual ~Event() = default;

  /// Whether the work before the event is done. Does not block. DeviceError if that work failed.
  virtual bool done() const = 0;

  /// Blocks the host until the work before the event is done. DeviceError if it failed.
  LOCKSTEP_PARTS_API void synchronize();
};

template <>
struct detail::Inside<Stream> {
  Stream& stream;

  /// Uninitialised memory of the device, for work enqueued on this stream from here on. The release is ordered as well:
  /// work enqueued here before the buffer's destruction may still use it. The buffer may outlive the stream, but not
  /// the device. Zero bytes are a valid size. DeviceError if there is not enough memory.
  Buffer allocate(std::size_t bytes) const { return stream.allocate(bytes); }

  /// Zeroed, pinned host memory (Tensor::pinned). This stream copies to and from it without a second copy and without
  /// involving the host. It must not be released before those copies are done. DeviceError if there is not enough
  /// memory.
  Buffer allocate_pinned(std::size_t bytes) const { return stream.allocate_pinned(bytes); }

  /// An event after everything enqueued so far.
  std::unique_ptr<Event> record() const { return stream.record(); }

  /// Work enqueued from here on starts after `event`, which may be destroyed once this returns.
  void wait(const Event& event) const { stream.wait(event); }
};

inline detail::Inside<Stream> inside(Stream& stream) {
  return {stream};
}

/// One device of this process. Outlives every Stream, Event and Buffer made by it.
class Device {
 public:
  virtual ~Device() = default;

  virtual DeviceKind kind() const = 0;

  /// "cpu", "cuda:1", ….
  virtual std::string name() const = 0;

  /// A new stream of this device.
  virtual std::unique_ptr<Stream> make_stream() = 0;
};

/// Blocks until all work of this process on its device of `kind` is done, then copies from that device's memory to the
/// host's.
void read_device(DeviceKind kind, void* to, const void* from, std::size_t bytes);

/// The size of the memory of this process's device of `kind`, whether in use or not.
std::uint64_t memory_bytes(DeviceKind kind);

}  // namespace lockstep
