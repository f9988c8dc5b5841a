#include "python/future.hpp"

#include <memory>
#include <utility>

#include <torch/csrc/distributed/c10d/Work.hpp>
#include <torch/csrc/jit/python/pybind_utils.h>
#include <torch/csrc/utils/pybind.h>

#include "python/turns.hpp"
#include "python/work.hpp"

namespace py = pybind11;

namespace lockstep::python {
namespace {

using torch::jit::PythonFutureWrapper;

/// Of two bases for shared_from_this, pybind11 uses none: that of torch's class, which has no virtual function, does
/// not compile. So torch's functions are called on another object of that class.
class CallFuture : public PythonFutureWrapper, public std::enable_shared_from_this<CallFuture> {
 public:
  /// `turns` are null around another backend.
  CallFuture(c10::intrusive_ptr<c10::ivalue::Future> future, std::shared_ptr<Turns> turns)
      : PythonFutureWrapper{std::move(future)}, turns_{std::move(turns)} {}

  std::shared_ptr<CallFuture> then(py::function callback) {
    const auto returned = std::make_shared<PythonFutureWrapper>(fut)->then(in_turn(std::move(callback)));
    return std::make_shared<CallFuture>(returned->fut, turns_);
  }

  void add_done_callback(py::function callback) {
    std::make_shared<PythonFutureWrapper>(fut)->add_done_callback(in_turn(std::move(callback)));
  }

 private:
  py::function in_turn(py::function callback) const {
    if (turns_) return turns_->in_turn(std::move(callback));
    const py::gil_scoped_release without_lock;
    fut->wait();
    return callback;
  }

  std::shared_ptr<Turns> turns_;
};

}  // namespace

void define_future(py::module_& module) {
  py::class_<CallFuture, PythonFutureWrapper, std::shared_ptr<CallFuture>>(module, "Future")
      .def("then", &CallFuture::then)
      .def("add_done_callback", &CallFuture::add_done_callback);
}

py::object future_of(const py::object& work, py::object future) {
  auto* const of_call = dynamic_cast<CallWork*>(work.cast<c10d::Work*>());
  if (!of_call) return future;
  return py::cast(std::make_shared<CallFuture>(of_call->getFuture(), of_call->turns()));
}

}  // namespace lockstep::python
