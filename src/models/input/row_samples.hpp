// Rows of numbers as samples.
#pragma once

#include <memory>

#include <lockstep/core/base/dtype.hpp>
#include <lockstep/models/input/sample_source.hpp>
#include <lockstep/models/input/schema.hpp>

#include "models/input/labelled_sets.hpp"

namespace lockstep {

/// Batches of `dtype`, with numbers scaled and labels as `schema` says; null where the rows are not read. Filling a
/// batch throws a ConfigError also for a number that is too large to scale.
std::unique_ptr<const SampleSource> samples_of(LabelledRows rows, const DataSchema& schema, DType dtype);

}  // namespace lockstep
