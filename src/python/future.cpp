#include "python/future.hpp"

#include <exception>
#include <memory>
#include <utility>

#include <torch/csrc/Exceptions.h>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <torch/csrc/jit/python/pybind_utils.h>
#include <torch/csrc/utils/pybind.h>

#include "python/call.hpp"
#include "python/turns.hpp"
#include "python/work.hpp"

namespace py = pybind11;

namespace lockstep::python {
namespace {

using torch::jit::PythonFutureWrapper;

/// A class with two bases enable_shared_from_this has no shared pointer to itself in pybind11, and torch's base alone
/// does not compile, because it has no virtual function. So callbacks get a PythonFutureWrapper of the same future.
class CallFuture : public PythonFutureWrapper, public std::enable_shared_from_this<CallFuture> {
 public:
  /// Without `turns`, those who add a callback wait for `call`; null if the future has completed.
  CallFuture(c10::intrusive_ptr<c10::ivalue::Future> future, std::shared_ptr<Turns> turns, std::shared_ptr<Call> call)
      : PythonFutureWrapper{std::move(future)}, turns_{std::move(turns)}, call_{std::move(call)} {}

  /// As torch's, but an exception of the callback keeps its type.
  std::shared_ptr<CallFuture> then(py::function callback) {
    const auto kept = std::make_shared<torch::jit::PythonFunctionGuard>(in_turn(std::move(callback)));
    const auto run = [kept, given = given()](c10::ivalue::Future&) {
      const py::gil_scoped_acquire lock;
      try {
        return torch::jit::toIValue(kept->func_(given), c10::PyObjectType::get());
      } catch (py::error_already_set& error) {
        error.restore();
        python_error raised;
        raised.persist();
        throw raised;
      }
    };
    return std::make_shared<CallFuture>(fut->then(run, c10::PyObjectType::get()), turns_, nullptr);
  }

  void add_done_callback(py::function callback) { given()->add_done_callback(in_turn(std::move(callback))); }

 private:
  std::shared_ptr<PythonFutureWrapper> given() const { return std::make_shared<PythonFutureWrapper>(fut); }

  py::function in_turn(py::function callback) const {
    if (turns_) return turns_->in_turn(std::move(callback));
    const py::gil_scoped_release without_lock;
    try {
      if (call_) call_->wait({});
    } catch (...) {
      // The callback sees the failure of the call.
      if (!call_->is_finished() || std::current_exception() != call_->failure()) throw;
    }
    fut->wait();  // it completes after its call
    return callback;
  }

  std::shared_ptr<Turns> turns_;
  std::shared_ptr<Call> call_;
};

}  // namespace

void define_future(py::module_& module) {
  py::class_<CallFuture, PythonFutureWrapper, std::shared_ptr<CallFuture>>(module, "Future")
      .def("then", &CallFuture::then)
      .def("add_done_callback", &CallFuture::add_done_callback);
}

py::object future_of(const py::object& work, py::object future) {
  auto* const of_call = dynamic_cast<CallWork*>(work.cast<c10d::Work*>());
  if (!of_call || of_call->call()->of() == Call::Of::two_ranks) return future;
  return py::cast(std::make_shared<CallFuture>(of_call->getFuture(), of_call->turns(), of_call->call()));
}

}  // namespace lockstep::python
