#include "python/work.hpp"

#include <utility>

namespace lockstep::python {

CallWork::CallWork(std::shared_ptr<Call> call, int rank, c10d::OpType type)
    : Work{rank, type}, call_{std::move(call)} {}

bool CallWork::isCompleted() {
  return call_->is_finished();
}

bool CallWork::isSuccess() const {
  return call_->is_finished() && !call_->failure();
}

std::exception_ptr CallWork::exception() const {
  return call_->is_finished() ? call_->failure() : nullptr;
}

bool CallWork::wait(std::chrono::milliseconds timeout) {
  call_->wait(timeout);
  return true;
}

std::vector<at::Tensor> CallWork::result() {
  return call_->result();
}

c10::intrusive_ptr<c10::ivalue::Future> CallWork::getFuture() {
  return call_->future();
}

}  // namespace lockstep::python
