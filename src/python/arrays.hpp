// What the package does with arrays of NumPy.
#pragma once

#include <string>

#include <pybind11/numpy.h>

namespace lockstep::python {

// COLL over all ranks of the job, blocking, with Python's lock, which is free during the wait. Python acts on signals
// meanwhile. Ranks do not compare lines of Python.

/// `array`, which is contiguous and writable, becomes the sum of all ranks' arrays: `op` is "sum" or "exact_sum". It is
/// left alone if that fails.
/// InvalidArgument for elements other than float32, float64, int32 and int64, and for exact sums of integers.
void all_reduce(pybind11::array& array, const std::string& op);

/// The exact sum of the numbers of all ranks, rounded once. They are contiguous, and float32 or float64 on all.
double exact_sum(const pybind11::array& numbers);

/// MismatchError unless all ranks give the same text: "name = value".
void same_on_all(const std::string& text);

}  // namespace lockstep::python
