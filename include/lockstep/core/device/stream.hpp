// Streams: the work on the device of this process, in order.
#pragma once

#include <cstddef>
#include <memory>

#include <lockstep/core/base/device_kind.hpp>
#include <lockstep/core/base/export.hpp>

namespace lockstep {

class Buffer;
class Event;

/// An ordered queue of work on one device, and the memory that this work uses. On the host, every operation is done
/// when its call returns. For a GPU's work, only `synchronize` blocks the host.
class LOCKSTEP_API Stream {
 public:
  /// A stream of the CPU. It has no state, so the whole process shares one.
  static Stream& host();

  virtual ~Stream() = default;

  /// The kind of this stream's device.
  virtual DeviceKind kind() const = 0;

  /// Enqueues a copy. Each range is memory of the device or of the host, and must live until the copy is done; a host
  /// range that is not pinned (Tensor::pinned) may be released when this returns. The ranges must not overlap.
  virtual void copy(void* to, const void* from, std::size_t bytes) = 0;

  /// Enqueues zeroing of device memory.
  virtual void fill_zero(void* to, std::size_t bytes) = 0;

  /// Blocks the host until everything enqueued so far is done. DeviceError if any of it failed.
  virtual void synchronize() = 0;

  /// A new stream of the same device, for work that runs concurrently with this stream's.
  virtual std::unique_ptr<Stream> make_sibling() = 0;

  /// Whether work enqueued here is being recorded (into a CUDA graph) instead of executed. False on the host.
  virtual bool is_capturing() const = 0;

 private:
  friend struct detail::Inside<Stream>;
  virtual Buffer allocate(std::size_t bytes) = 0;
  virtual Buffer allocate_pinned(std::size_t bytes) = 0;
  virtual std::unique_ptr<Event> record() = 0;
  virtual void wait(const Event& event) = 0;
};

}  // namespace lockstep
