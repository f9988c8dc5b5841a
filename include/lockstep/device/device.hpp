// Devices and their memory. A process owns one device. Host and GPU share one interface.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

enum class DeviceKind : std::uint8_t { cpu, cuda };

/// "cpu" or "cuda".
const char* name_of(DeviceKind kind);

/// Owns memory on one device and releases it when destroyed. Move-only. Aligned to `alignment` bytes.
class Buffer {
 public:
  static constexpr std::size_t alignment = 256;
  /// Must not throw.
  using Release = std::function<void(void*)>;

  Buffer() = default;
  /// Takes ownership of `data`, which `release` frees.
  Buffer(void* data, std::size_t bytes, DeviceKind kind, Release release)
      : data_{data}, bytes_{bytes}, kind_{kind}, release_{std::move(release)} {}
  Buffer(Buffer&& other) noexcept { swap(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    Buffer taken{std::move(other)};
    swap(taken);
    return *this;
  }
  ~Buffer() {
    if (data_) release_(data_);
  }

  std::byte* data() const { return static_cast<std::byte*>(data_); }
  std::size_t bytes() const { return bytes_; }
  DeviceKind kind() const { return kind_; }

 private:
  void swap(Buffer& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    std::swap(kind_, other.kind_);
    std::swap(release_, other.release_);
  }

  void* data_ = nullptr;
  std::size_t bytes_ = 0;
  DeviceKind kind_ = DeviceKind::cpu;
  Release release_;
};

/// A point in a stream's work. Stream::record creates it; Stream::wait or the host waits for it.
class Event {
 public:
  virtual ~Event() = default;

  /// Whether the work before the event is done. Does not block. DeviceError if that work failed.
  virtual bool done() const = 0;

  /// Blocks the host until the work before the event is done. DeviceError if it failed.
  void synchronize();
};

/// An ordered queue of work on one device, and the memory that this work uses. On the host, every operation is done
/// when its call returns. For a GPU's work, only `synchronize` blocks the host.
class Stream {
 public:
  virtual ~Stream() = default;

  /// The kind of this stream's device.
  virtual DeviceKind kind() const = 0;

  /// Uninitialised memory of the device, for work enqueued on this stream from here on. The release is ordered as well:
  /// work enqueued here before the buffer's destruction may still use it. The buffer may outlive the stream, but not
  /// the device. Zero bytes are a valid size. DeviceError if there is not enough memory.
  virtual Buffer allocate(std::size_t bytes) = 0;

  /// Zeroed, pinned host memory. This stream copies to and from it without a second copy and without involving the
  /// host. It must not be released before those copies are done. DeviceError if there is not enough memory.
  virtual Buffer allocate_pinned(std::size_t bytes) = 0;

  /// Enqueues a copy. Each range is memory of the device or of the host, and must live until the copy is done; a host
  /// range that is not pinned (allocate_pinned) may be released when this returns. The ranges must not overlap.
  virtual void copy(void* to, const void* from, std::size_t bytes) = 0;

  /// Enqueues zeroing of device memory.
  virtual void fill_zero(void* to, std::size_t bytes) = 0;

  /// An event after everything enqueued so far.
  virtual std::unique_ptr<Event> record() = 0;

  /// Work enqueued from here on starts after `event`, which may be destroyed once this returns.
  virtual void wait(const Event& event) = 0;

  /// Blocks the host until everything enqueued so far is done. DeviceError if any of it failed.
  virtual void synchronize() = 0;

  /// A new stream of the same device, for work beside that of this one.
  virtual std::unique_ptr<Stream> make_sibling() = 0;

  /// Whether work enqueued here is being recorded (into a CUDA graph) instead of executed. False on the host.
  virtual bool is_capturing() const = 0;
};

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

/// A stream of the CPU. It has no state, so the whole process shares one.
Stream& host_stream();

/// Blocks until all work of this process on its device of `kind` is done, then copies from that device's memory to the
/// host's.
void read_device(DeviceKind kind, void* to, const void* from, std::size_t bytes);

/// The size of the memory of this process's device of `kind`, whether in use or not.
std::uint64_t memory_bytes(DeviceKind kind);

}  // namespace lockstep
