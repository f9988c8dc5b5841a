// Calls of another backend, each of which follows an agreement.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>
#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include "python/call.hpp"

namespace lockstep::python {

/// Calls of another backend, which begin in the order of the program's, each once its ranks agree on it. Thread-safe.
class InnerCalls : public std::enable_shared_from_this<InnerCalls> {
 public:
  struct Parts {
    /// Called once, when all agreements have been reached. What it throws is the failure of the call.
    std::function<c10::intrusive_ptr<c10d::Work>()> begin;
    /// On a device: the current stream while `begin` runs; then it waits for the work. Null on the host.
    std::optional<c10::Stream> stream = {};
    std::vector<at::Tensor> tensors = {};  ///< on a device: whose memory the work uses
    /// The last member: when they are destroyed, they wait until nothing uses the memory of `begin` any more.
    std::vector<std::shared_ptr<Task>> agreements = {};
  };

  InnerCalls();
  InnerCalls(const InnerCalls&) = delete;
  ~InnerCalls();

  /// LOCAL, never blocks. Returns a task that ends with the work, or on a device once `stream` waits for it.
  std::shared_ptr<Task> add(Parts parts);

 private:
  class InnerCall;
  class Waiter;
  void begin_agreed();

  std::shared_ptr<Waiter> waiter_;
  std::mutex mutex_;
  std::deque<std::shared_ptr<InnerCall>> waiting_;  ///< under `mutex_`
  bool is_beginning_ = false;                       ///< a thread begins calls; under `mutex_`
};

/// For tensors on this device: one of its streams, which waits for what the current one has now. Null on the host.
std::optional<c10::Stream> stream_after_current(c10::Device device);

}  // namespace lockstep::python
