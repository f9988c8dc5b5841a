// A hint for who trains on numbers of unlike or great sizes.
#pragma once

#include <string>

#include <lockstep/models/input/sample_source.hpp>
#include <lockstep/models/input/schema.hpp>

namespace lockstep {

/// LOCAL. Names the columns with the largest and the smallest numbers if these differ by more than a factor of 1000, or
/// else the column, the label of a regression or the array whose numbers exceed 100, and what scales them: "; the
/// columns "a" (up to 2e+06) and "b" (up to 0.5) differ by more than a factor of 1000: --scale standard may help".
/// Empty if there is nothing to say, and for data that are scaled. Looks at the first samples.
std::string scale_hint(const SampleSource& samples, const DataSchema& schema);

}  // namespace lockstep
