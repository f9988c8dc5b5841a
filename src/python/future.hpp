// Futures of calls, for Python.
#pragma once

#include <pybind11/pybind11.h>

namespace lockstep::python {

/// With Python's lock, when the module is loaded. Adds the class of `future_of`, below torch's.
void define_future(pybind11::module_& module);

/// With Python's lock. What `get_future` of a c10d Work returns in Python: `future`, which torch has made of it. That
/// of a collective of lockstep runs its callbacks in turn (Turns); around another backend, which makes calls in one
/// order alone, it does so at once, and waits for the call first, as NCCL's futures have results at once.
pybind11::object future_of(const pybind11::object& work, pybind11::object future);

}  // namespace lockstep::python
