// The thread that finds out when a collective under way fails: its rank may be waiting for that collective for ever.
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <thread>

#include "comm/nccl/nccl_handle.hpp"

namespace lockstep {

/// Looks at a communicator at each beat, in every phase of the step: a look takes less than a microsecond, and knowing
/// when a collective is outstanding would take more. Calls `on_failure` with a CommError at the first failure that
/// nobody else has seen, and ends.
class FailureWatch {
 public:
  /// `on_failure` is called on the watch's thread. It must not throw, nor destroy the watch.
  FailureWatch(NcclHandle& handle, std::shared_ptr<Ticker> ticker, std::function<void(std::exception_ptr)> on_failure);
  FailureWatch(const FailureWatch&) = delete;
  FailureWatch& operator=(const FailureWatch&) = delete;

  /// Blocks while a call of `on_failure` is under way.
  ~FailureWatch();

 private:
  void watch() noexcept;

  NcclHandle& handle_;
  std::shared_ptr<Ticker> ticker_;
  std::function<void(std::exception_ptr)> on_failure_;
  std::thread thread_;
};

}  // namespace lockstep
