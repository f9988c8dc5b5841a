#include "comm/nccl/failure_watch.hpp"

#include <utility>

namespace lockstep {

FailureWatch::FailureWatch(NcclHandle& handle, std::shared_ptr<Ticker> ticker,
                           std::function<void(std::exception_ptr)> on_failure)
    : handle_{handle}, ticker_{std::move(ticker)}, on_failure_{std::move(on_failure)}, thread_{[this] { watch(); }} {}

FailureWatch::~FailureWatch() {
  ticker_->stop();
  thread_.join();
}

// noexcept: nobody could catch an exception that leaves `on_failure`, so it ends the process at once.
void FailureWatch::watch() noexcept {
  while (ticker_->wait()) {
    if (const auto failure = handle_.failure()) {
      on_failure_(std::make_exception_ptr(CommError{*failure}));
      return;
    }
  }
}

}  // namespace lockstep
