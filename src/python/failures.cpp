#include "python/failures.hpp"

#include <algorithm>
#include <deque>
#include <mutex>
#include <utility>

#include <pybind11/pybind11.h>
#include <torch/csrc/Exceptions.h>

#include <lockstep/core/base/error.hpp>

#include "python/python_lock.hpp"

namespace py = pybind11;

namespace lockstep::python {
namespace {

struct Remembered {
  std::mutex mutex;
  std::deque<std::pair<std::string, std::exception_ptr>> failures;  ///< with what they say, the newest first
};

Remembered& remembered() {
  static auto* const all = new Remembered;
  return *all;
}

/// Null if none of them has said that.
std::exception_ptr failure_in(const std::string& text) {
  const std::scoped_lock lock{remembered().mutex};
  const auto found =
      std::ranges::find_if(remembered().failures, [&](const auto& each) { return text.find(each.first) != text.npos; });
  return found == remembered().failures.end() ? nullptr : found->second;
}

/// The name of its exception in Python.
const char* name_of(const Error& error) {
  if (dynamic_cast<const MismatchError*>(&error)) return "MismatchError";
  if (dynamic_cast<const PeerError*>(&error)) return "PeerError";
  if (dynamic_cast<const StallError*>(&error)) return "StallError";
  if (dynamic_cast<const InvalidArgument*>(&error)) return "InvalidArgument";
  return "Error";
}

class FailureForTorch final : public torch::PyTorchError {
 public:
  /// `error` is that of `failure`.
  FailureForTorch(const Error& error, std::string text, std::exception_ptr failure)
      : PyTorchError{std::move(text)}, error_{error}, failure_{std::move(failure)} {}

  PyObject* python_type() override { return py::module_::import("lockstep").attr(name_of(error_)).ptr(); }
  const Error& error() const { return error_; }
  const std::exception_ptr& failure() const { return failure_; }

 private:
  const Error& error_;
  std::exception_ptr failure_;
};

void raise(const Error& error, const char* text) {
  const py::object type = py::module_::import("lockstep").attr(name_of(error));
  const py::object raised = type(text);
  if (const auto* const of_peer = dynamic_cast<const PeerError*>(&error)) raised.attr("rank") = of_peer->rank();
  PyErr_SetObject(type.ptr(), raised.ptr());
}

void translate(std::exception_ptr failure) {
  try {
    if (!failure) return;
    remember(failure);
    std::rethrow_exception(failure);
  } catch (const Error& error) {
    raise(error, error.what());
  } catch (const FailureForTorch& error) {
    remember(error.failure());
    raise(error.error(), error.what());
  } catch (python_error& error) {
    error.restore();
  }
}

/// "; this rank brings the gradients of fc.weight, fc.bias", or nothing.
std::string names_of(std::int64_t gradients) {
  if (gradients == 0) return {};
  const PythonLock lock;
  if (!lock.is_held()) return {};
  try {
    const auto names = py::module_::import("lockstep._buckets").attr("names_of")(gradients).cast<std::string>();
    return names.empty() ? names : "; this rank brings " + names;
  } catch (const py::error_already_set&) {
    return {};
  }
}

}  // namespace

void translate_failures() {
  py::register_exception_translator(translate);
}

void remember(const std::exception_ptr& failure) {
  constexpr std::size_t at_most = 64;
  try {
    std::rethrow_exception(failure);
  } catch (const Error& error) {
    const std::scoped_lock lock{remembered().mutex};
    remembered().failures.emplace_front(error.what(), failure);
    if (remembered().failures.size() > at_most) remembered().failures.pop_back();
  } catch (...) {
    // Python's own, or torch's: other ranks know nothing of it.
  }
}

std::exception_ptr for_torch(const std::exception_ptr& failure, std::int64_t gradients) {
  try {
    std::rethrow_exception(failure);
  } catch (const Error& error) {
    return std::make_exception_ptr(FailureForTorch{error, error.what() + names_of(gradients), failure});
  } catch (...) {
    return failure;
  }
}

// As an exception that leaves a program in C++. Runtime::end_job would also take down, when MPI ends, what the threads
// of this extension still use.
void end_job(const std::string& text) noexcept {
  const std::exception_ptr failure = failure_in(text);
  std::rethrow_exception(failure ? failure : std::make_exception_ptr(Error{text}));
}

}  // namespace lockstep::python
