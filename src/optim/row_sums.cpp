#include "optim/row_sums.hpp"

#include <algorithm>
#include <functional>
#include <numeric>

#include "ops/with_type.hpp"

namespace lockstep::detail {
RowSums sum_rows(const IndexedSlices& slices) {
  const TensorView rows = slices.values.view();
  RowSums sums;
  if (rows.count() > 0) sums.row_size = rows.count() / rows.shape()[0];
  const auto row = static_cast<std::size_t>(sums.row_size);
  const auto indices = slices.indices.view().elements<std::int64_t>();
  const auto index_of = [&](std::size_t position) { return indices[position]; };
  std::vector<std::size_t> order(indices.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, {}, index_of);

  ops::with_type(rows.dtype(), [&]<class T>() {
    std::vector<T> values;
    Shape shape = rows.shape();
    shape[0] = 0;
    std::int64_t last = -1;
    for (const std::size_t position : order) {
      const std::span<const T> added = rows.elements<T>().subspan(position * row, row);
      const std::int64_t index = index_of(position);
      if (index == last) {
        const std::span<T> sum = std::span{values}.last(row);
        std::ranges::transform(sum, added, sum.begin(), std::plus{});
        continue;
      }
      values.insert(values.end(), added.begin(), added.end());
      ++shape[0];
      if (sums.runs.empty() || index != last + 1) sums.runs.push_back({.first = index, .count = 0});
      ++sums.runs.back().count;
      last = index;
    }
    sums.values = Tensor::from(values, shape);
  });
  return sums;
}

void write_rows(const RowSums& rows, const TensorView& gradient, Stream& stream) {
  gradient.fill_zero(stream);
  std::int64_t from = 0;
  for (const RowRun& run : rows.runs) {
    const std::int64_t count = run.count * rows.row_size;
    copy(rows.values.view().slice(from, count), gradient.slice(run.first * rows.row_size, count), stream);
    from += count;
  }
}

}  // namespace lockstep::detail
