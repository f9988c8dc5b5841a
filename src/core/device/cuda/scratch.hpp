// Memory for what a kernel needs besides its operands.
#pragma once

#include <cstddef>
#include <mutex>

#include "core/device/device.hpp"

namespace lockstep::detail::cuda {

/// GPU memory that calls use one after the other. It is kept, so that a step allocates nothing. Threads may share it.
class Scratch {
 public:
  /// Enqueues on `stream`, which must outlive it.
  explicit Scratch(Stream& stream) : stream_{stream} {}

  /// The memory for one call. Other threads wait for theirs while it lives. Work enqueued meanwhile may
  /// use the memory even after this object is gone: the next call's work follows it on the stream.
  class Use {
   public:
    Use(const Scratch& scratch, std::size_t bytes) : lock_{scratch.mutex_}, memory_{scratch.memory_} {
      if (memory_.bytes() >= bytes) return;
      memory_ = {};  // frees the smaller one first, in the order of the stream
      memory_ = inside(scratch.stream_).allocate(bytes);
    }

    /// Aligned as a buffer.
    std::byte* data() const { return memory_.data(); }

   private:
    std::unique_lock<std::mutex> lock_;
    Buffer& memory_;
  };

 private:
  Stream& stream_;
  mutable std::mutex mutex_;
  mutable Buffer memory_;
};

}  // namespace lockstep::detail::cuda
