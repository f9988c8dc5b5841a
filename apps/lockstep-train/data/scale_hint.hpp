// Columns whose numbers are of very different sizes, which train badly.
#pragma once

#include <string>
#include <vector>

#include <lockstep/input/sample_source.hpp>

namespace lockstep {

/// LOCAL, blocking: reads the first 65536 samples. Names the columns with the largest and the smallest numbers, and the
/// largest absolute value of each:
///
///   ; the columns "a" (up to 2e+06) and "b" (up to 0.5) differ by more than a factor of 1000: --scale standard may …
///
/// Columns of zeros do not count. Empty if the columns differ less, if there are no `columns`, and if samples can no
/// longer be read. Each of `columns` is a number of the inputs of `samples`, which are of f32 or f64.
std::string scale_hint(const SampleSource& samples, const std::vector<std::string>& columns);

}  // namespace lockstep
