#include "core/comm/nccl/failure_watch.hpp"

#include <utility>

#include "core/base/start_thread.hpp"

namespace lockstep {

FailureWatch::FailureWatch(NcclHandle& handle, std::shared_ptr<Ticker> ticker,
                           std::function<void(std::exception_ptr)> on_failure)
    : handle_{handle},
      ticker_{std::move(ticker)},
      on_failure_{std::move(on_failure)},
      thread_{start_thread("that watches NCCL", [this] { watch(); })} {}

FailureWatch::~FailureWatch() {
  ticker_->stop();
  thread_.join();
}

// noexcept: nobody could catch an exception that leaves `on_failure`, so it ends the process at once.
void FailureWatch::watch() noexcept {
  while (ticker_->wait()) {
    const auto failure = handle_.failure();
    if (!failure) continue;
    if (failure->is_remote && !others_leave_it_to_us()) return;
    std::exception_ptr told;
    try {
      told = std::make_exception_ptr(CommError{failure->text});
    } catch (...) {
      told = std::current_exception();  // no memory for more
    }
    return on_failure_(told);
  }
}

/// Lets the rank to blame, and those that watch it, have the first word. False if this rank has stopped, or has given
/// up its communicator, meanwhile.
bool FailureWatch::others_leave_it_to_us() {
  for (int beat = 0; beat < beats_for_others; ++beat)
    if (!ticker_->wait() || handle_.is_given_up()) return false;
  return true;
}

}  // namespace lockstep
