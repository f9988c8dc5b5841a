// Devices and their memory. A process owns one device; host and GPU stand behind one interface.
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

/// Owns bytes on one device and gives them back when it goes. Move-only. Aligned to `alignment` bytes.
class Buffer {
 public:
  static constexpr std::size_t alignment = 256;
  /// Must not throw.
  using Release = std::function<void(void*)>;

  Buffer() = default;
  /// Takes over `data`, which `release` frees.
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

/// A point in a stream's work. Recorded by Stream::record, waited for by Stream::wait or the host.
class Event {
 public:
  virtual ~Event() = default;

  /// Whether the work before the event is done. Does not block. DeviceError if that work failed.
  virtual bool done() const = 0;

  /// Blocks the host until the work before the event is done. DeviceError if it failed.
  virtual void synchronize() = 0;
};

/// An ordered queue of work on one device, and the memory which that work uses. On the host every operation is done
/// when its call returns. Nothing but `synchronize` blocks the host for the work of a GPU.
class Stream {
 public:
  virtual ~Stream() = default;

  /// Of the device.
  virtual DeviceKind kind() const = 0;

  /// Uninitialised memory of the device, for work enqueued on this stream from here on. It is given back in the same
  /// order: what was enqueued here before the buffer went may still use it, and the buffer may outlive the stream, but
  /// not the device. Zero bytes are a valid size. DeviceError when there is not enough.
  virtual Buffer allocate(std::size_t bytes) = 0;

  /// Zeroed memory of the host, pinned: what this stream copies from there and to there goes without a second copy and
  /// without the host. It must not go before the copies are done.
  virtual Buffer allocate_pinned(std::size_t bytes) = 0;

  /// Enqueues a copy. Each range is memory of the device or of the host, and must live until the copy is done; a range
  /// of the host that is not pinned (allocate_pinned) may be given up when this returns.
  virtual void copy(void* to, const void* from, std::size_t bytes) = 0;

  /// Enqueues zeros for memory of the device.
  virtual void fill_zero(void* to, std::size_t bytes) = 0;

  /// An event after everything enqueued so far.
  virtual std::unique_ptr<Event> record() = 0;

  /// Work enqueued from here on starts after `event`, which may go once this returns.
  virtual void wait(const Event& event) = 0;

  /// Blocks the host until everything enqueued so far is done. DeviceError if any of it failed.
  virtual void synchronize() = 0;

  /// Whether work enqueued here is being recorded (into a CUDA graph) instead of done. False on the host.
  virtual bool is_capturing() const = 0;
};

/// One device of this process. Outlives every Stream, Event and Buffer made by it.
class Device {
 public:
  virtual ~Device() = default;

  virtual DeviceKind kind() const = 0;

  /// "cpu", "cuda:1".
  virtual std::string name() const = 0;

  virtual std::unique_ptr<Stream> make_stream() = 0;
};

/// The CPU. Its work is done when the call returns.
std::unique_ptr<Device> make_host_device();

/// A stream of the CPU. It has no state, so one does for the whole process.
Stream& host_stream();

/// Zeroed host memory: what tensors made from host values live in.
Buffer allocate_host(std::size_t bytes);

/// GPUs that this process could bind. 0 where the build has no GPU backend, or the machine no driver.
int cuda_device_count();

/// The UUIDs of those GPUs, in the order of their numbers: 32 hexadecimal digits. A launcher may let each process of a
/// node see other GPUs, and GPU 0 of one process is then not that of another. DeviceError where a GPU does not answer.
std::vector<std::string> cuda_device_uuids();

/// Binds GPU `index` of this node for the life of the process; nothing of the process may touch a GPU before.
/// DeviceError where the build has no GPU backend, or the GPU cannot be used.
std::unique_ptr<Device> make_cuda_device(int index);

/// Blocks until all work of the process on its device of `kind` is done, then copies from its memory to the host's.
void read_device(DeviceKind kind, void* to, const void* from, std::size_t bytes);

/// All memory of the process's device of `kind`, used or not: the host's, or that of the GPU which the calling thread
/// has bound.
std::uint64_t memory_bytes(DeviceKind kind);

}  // namespace lockstep
