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
    std::vector<std::shared_ptr<Task>> agreements;
    /// Called once, when all agreements have been reached. What it throws is the failure of the call.
    std::function<c10::intrusive_ptr<c10d::Work>()> begin;
    std::vector<at::Tensor> tensors;  ///< whose memory the work uses
    /// Null on the host. Of a device: the current one in `begin`, which afterwards waits for the work.
    std::optional<c10::Stream> stream = {};
  };

  InnerCalls();
  InnerCalls(const InnerCalls&) = delete;
  ~InnerCalls();

  /// LOCAL, never blocks. A task that has ended when the work has, or on a device, when `stream` waits for it.
  std::shared_ptr<Task> add(Parts parts);

 private:
  class InnerCall;
  class Waiter;
  void begin_agreed();

  std::shared_ptr<Waiter> waiter_;
  std::mutex mutex_;
  std::deque<std::shared_ptr<InnerCall>> waiting_;  ///< under `mutex_`
};

/// For tensors on this device: one of its streams, which waits for what the current one has now. Null on the host.
std::optional<c10::Stream> stream_after_current(c10::Device device);

}  // namespace lockstep::python
