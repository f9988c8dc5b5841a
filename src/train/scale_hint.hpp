// Columns whose numbers are of very different sizes, which train badly.
#pragma once

#include <string>
#include <vector>

#include <lockstep/input/sample_source.hpp>

namespace lockstep {

/// LOCAL, blocking: reads the first 65536 samples. "; the columns "a" (up to 2e+06) and "b" (up to 0.5) differ by more
/// than 1000:
/// --scale standard may help", with the columns of the largest and the smallest numbers, and up to which absolute value
/// they go; columns of zeros do not count. Empty if they differ less, if there are no `columns`, and if samples can no
/// longer be read. A column of `samples` is a number of their inputs, of f32 or f64.
std::string scale_hint(const SampleSource& samples, const std::vector<std::string>& columns);

}  // namespace lockstep
