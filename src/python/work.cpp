#include "python/work.hpp"

#include <exception>
#include <utility>

#include <lockstep/core/base/error.hpp>

#include "python/failures.hpp"

namespace lockstep::python {

CallWork::CallWork(std::shared_ptr<Call> call, int rank, c10d::OpType type, std::shared_ptr<Turns> turns)
    : Work{rank, type}, call_{std::move(call)}, turns_{std::move(turns)} {}

bool CallWork::isCompleted() {
  return call_->is_finished();
}

bool CallWork::isSuccess() const {
  return call_->is_finished() && !exception();
}

std::exception_ptr CallWork::exception() const {
  return call_->is_finished() ? call_->tell_failure() : nullptr;
}

bool CallWork::wait(std::chrono::milliseconds timeout) {
  try {
    call_->wait(timeout);
  } catch (const Error&) {
    std::rethrow_exception(call_->failure() ? call_->failure_for_torch() : for_torch(std::current_exception()));
  }
  return true;
}

std::vector<at::Tensor> CallWork::result() {
  return call_->result();
}

c10::intrusive_ptr<c10::ivalue::Future> CallWork::getFuture() {
  return call_->future();
}

}  // namespace lockstep::python
