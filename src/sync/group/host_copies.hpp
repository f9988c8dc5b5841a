// Values of requests that are in the memory of this rank's GPU.
#pragma once

#include <list>
#include <memory>
#include <mutex>

#include <lockstep/core/device/stream.hpp>
#include <lockstep/core/tensor/tensor.hpp>

#include "core/device/device.hpp"
#include "core/device/pinned_pool.hpp"

namespace lockstep::detail {

/// The values of one request, which moves only what is in the host's memory. Those on this rank's GPU are copied there
/// and back, on `compute`: what is sent is what the work enqueued before leaves there, and what is received is there
/// for the work enqueued after `put_back`.
class HostCopies {
 public:
  /// Both must outlive this object. `pinned` may be null for a rank without a GPU.
  HostCopies(Stream& compute, PinnedPool* pinned) : compute_{compute}, pinned_{pinned} {}
  HostCopies(const HostCopies&) = delete;
  /// Blocks until the copies are done.
  ~HostCopies();

  /// What the request does to values on this rank.
  enum class Use { none, sends, receives, both };

  /// LOCAL. `values` if they are on the host, or else what stands for them there; null if they are not used.
  /// ContextError while work on `compute` is captured.
  TensorView of(const TensorView& values, Use use);

  /// LOCAL. The same for a tensor that the request may replace by another one.
  Tensor& of(Tensor& tensor, Use use);

  /// LOCAL, from any thread. Whether all that is sent has come to the host.
  bool have_come() const { return !come_ || come_->done(); }

  /// LOCAL. Blocks until it has.
  void wait() const;

  /// LOCAL, from any thread, once all is received. The first call enqueues the copies to the GPU.
  void put_back();

 private:
  struct Copy {
    TensorView on_gpu;
    Tensor* tensor;  ///< that may get other memory on the GPU; null where only values are received
    PinnedPool::Pinned memory;
    Tensor on_host;  ///< in `memory`, until rows come that are more or fewer
    Use use;
  };
  Copy& copy_to_host(const TensorView& values, Tensor* tensor, Use use);

  Stream& compute_;
  PinnedPool* pinned_;
  std::list<Copy> copies_;       ///< which stay where they are; without memory if there are none
  std::unique_ptr<Event> come_;  ///< null if nothing is sent
  std::unique_ptr<Event> back_;  ///< null if nothing has been put back
  std::once_flag put_back_;
};

}  // namespace lockstep::detail
