// The thread that notices when a collective in flight fails: its rank may be waiting for that collective forever.
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <thread>

#include "core/comm/nccl/nccl_handle.hpp"

namespace lockstep {

/// Looks at a communicator at each beat, in every phase of the step: a look takes less than a microsecond, less than
/// tracking whether a collective is outstanding. Calls `on_failure` with a CommError at the first failure that nobody
/// else has seen, then ends. If another rank is the cause, it does so `beats_for_others` beats later.
class FailureWatch {
 public:
  static constexpr int beats_for_others = static_cast<int>(NcclLimits{}.word_of_others / watch_beat + 0.5);

  /// `on_failure` is called on the watch's thread. It must neither throw nor destroy the watch.
  FailureWatch(NcclHandle& handle, std::shared_ptr<Ticker> ticker, std::function<void(std::exception_ptr)> on_failure);
  FailureWatch(const FailureWatch&) = delete;
  FailureWatch& operator=(const FailureWatch&) = delete;

  /// Blocks while a call of `on_failure` is running.
  ~FailureWatch();

 private:
  void watch() noexcept;
  bool others_leave_it_to_us();

  NcclHandle& handle_;
  std::shared_ptr<Ticker> ticker_;
  std::function<void(std::exception_ptr)> on_failure_;
  std::thread thread_;
};

}  // namespace lockstep
