// Devices and their memory. A process owns one device; host and GPU stand behind one interface.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

namespace lockstep {

enum class DeviceKind : std::uint8_t { cpu, cuda };

/// "cpu" or "cuda".
const char* name_of(DeviceKind kind);

class Device;

/// Owns bytes on one device and gives them back when it goes. Move-only. Aligned to `alignment` bytes.
class Buffer {
 public:
  static constexpr std::size_t alignment = 256;
  using Release = void (*)(void*) noexcept;

  Buffer() = default;
  /// Takes over `data`, which `release` frees.
  Buffer(void* data, std::size_t bytes, DeviceKind kind, Release release)
      : data_{data}, bytes_{bytes}, kind_{kind}, release_{release} {}
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
  Release release_ = nullptr;
};

/// A point in a stream's work. Recorded by Stream::record, waited for by Stream::wait or the host.
class Event {
 public:
  virtual ~Event() = default;

  /// Blocks the host until the work before the event is done.
  virtual void synchronize() = 0;
};

/// An ordered queue of work on a device. On the host every operation is done when its call returns.
class Stream {
 public:
  virtual ~Stream() = default;

  /// An event after everything enqueued so far. Does not block the host.
  virtual std::unique_ptr<Event> record() = 0;

  /// Work enqueued from here on starts after `event`. Does not block the host. `event` may go once this returns.
  virtual void wait(const Event& event) = 0;

  /// Blocks the host until everything enqueued so far is done.
  virtual void synchronize() = 0;
};

/// One device of this process. Outlives every Buffer, Stream and Event made by it.
class Device {
 public:
  virtual ~Device() = default;

  virtual DeviceKind kind() const = 0;

  /// "cpu", "cuda:1".
  virtual std::string name() const = 0;

  virtual std::unique_ptr<Stream> make_stream() = 0;

  /// Uninitialised memory, usable by work enqueued on `stream` from here on. Zero bytes are a valid size.
  /// DeviceError when there is not enough.
  virtual Buffer allocate(std::size_t bytes, Stream& stream) = 0;

  /// Enqueue on `stream`. The host does not wait; both ranges must live until the work is done.
  virtual void copy(void* to, const void* from, std::size_t bytes, Stream& stream) = 0;
  virtual void fill_zero(void* to, std::size_t bytes, Stream& stream) = 0;
};

/// The CPU. Its work is done when the call returns.
std::unique_ptr<Device> make_host_device();

/// Zeroed host memory: what tensors made from host values live in.
Buffer allocate_host(std::size_t bytes);

/// GPUs that this process could bind. 0 where the build has no GPU backend, or the machine no driver.
int cuda_device_count();

/// Binds GPU `index` of this node for the life of the process. DeviceError where the build has no GPU backend.
std::unique_ptr<Device> make_cuda_device(int index);

}  // namespace lockstep
