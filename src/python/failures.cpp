#include "python/failures.hpp"

#include <algorithm>
#include <deque>
#include <mutex>
#include <utility>

#include <pybind11/pybind11.h>

#include <lockstep/core/base/error.hpp>

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

void raise(const char* name, const Error& error) {
  const py::object type = py::module_::import("lockstep").attr(name);
  const py::object raised = type(error.what());
  if (const auto* const of_peer = dynamic_cast<const PeerError*>(&error)) raised.attr("rank") = of_peer->rank();
  PyErr_SetObject(type.ptr(), raised.ptr());
}

void translate(std::exception_ptr failure) {
  try {
    if (!failure) return;
    remember(failure);
    std::rethrow_exception(failure);
  } catch (const MismatchError& error) {
    raise("MismatchError", error);
  } catch (const PeerError& error) {
    raise("PeerError", error);
  } catch (const StallError& error) {
    raise("StallError", error);
  } catch (const InvalidArgument& error) {
    raise("InvalidArgument", error);
  } catch (const Error& error) {
    raise("Error", error);
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

// As an exception that leaves a program in C++. Runtime::end_job would also take down, when MPI ends, what the threads
// of this extension still use.
void end_job(const std::string& text) noexcept {
  const std::exception_ptr failure = failure_in(text);
  std::rethrow_exception(failure ? failure : std::make_exception_ptr(Error{text}));
}

}  // namespace lockstep::python
