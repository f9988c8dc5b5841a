// The sum of slices, as the rows that it has.
#pragma once

#include <cstdint>
#include <vector>

#include <lockstep/values/values.hpp>

namespace lockstep::detail {

/// Neighbouring rows.
struct RowRun {
  std::int64_t first;
  std::int64_t count;
};

/// Rows of a gradient, each once.
struct RowSums {
  std::vector<RowRun> runs;   ///< ascending
  Tensor values;              ///< [rows, …], on the host: the rows of all runs
  std::int64_t row_size = 0;  ///< in elements
};

/// LOCAL. The rows of `slices`, which are valid, on the host, and of f32 or f64. Those of one index are added up in
/// their order.
RowSums sum_rows(const IndexedSlices& slices);

/// LOCAL. Writes the gradient that has these rows to `gradient`, in memory of the stream's device.
void write_rows(const RowSums& rows, const TensorView& gradient, Stream& stream);

}  // namespace lockstep::detail
