#include "python/python_lock.hpp"

#include <pybind11/pybind11.h>
#include <torch/csrc/python_headers.h>

namespace lockstep::python {
namespace {

bool is_ending() {
#if PY_VERSION_HEX >= 0x030d0000
  return Py_IsFinalizing();
#else
  return _Py_IsFinalizing();
#endif
}

unsigned long main_thread_ident = 0;

}  // namespace

PythonLock::PythonLock() : is_held_{Py_IsInitialized() != 0 && !is_ending()} {
  if (is_held_) state_ = PyGILState_Ensure();
}

PythonLock::~PythonLock() {
  if (is_held_) PyGILState_Release(static_cast<PyGILState_STATE>(state_));
}

void Interrupts::find_main_thread() {
  main_thread_ident = pybind11::module_::import("threading").attr("main_thread")().attr("ident").cast<unsigned long>();
}

void Interrupts::look() {
  if (PyThread_get_thread_ident() != main_thread_ident) return;
  const auto now = std::chrono::steady_clock::now();
  if (now < next_) return;
  next_ = now + between;
  const PythonLock lock;
  if (lock.is_held() && PyErr_CheckSignals() != 0) throw pybind11::error_already_set{};
}

}  // namespace lockstep::python
