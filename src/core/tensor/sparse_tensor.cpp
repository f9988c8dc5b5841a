#include <algorithm>
#include <cstring>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <lockstep/core/base/error.hpp>
#include <lockstep/core/tensor/sparse_tensor.hpp>

#include "core/base/element_count.hpp"
#include "core/base/element_type.hpp"

namespace lockstep {

void SparseTensor::require_valid() const {
  const TensorView at = indices.view(), elements = values.view();
  const auto dimensions = static_cast<std::int64_t>(dense_shape.size());
  element_count(dense_shape);
  if (dimensions == 0 || elements.shape().size() != 1 || at.dtype() != DType::i64 ||
      at.shape() != Shape{elements.count(), dimensions} || at.device() != elements.device())
    throw InvalidArgument{
        fmt::format("a sparse {} of values {} at indices {}: expected a dense shape of one or more extents, values [n] "
                    "and i64 indices [n, extents] on one device",
                    describe(dense_shape), describe(elements), describe(at))};
  const auto numbers = at.to_vector<std::int64_t>();
  for (auto index = numbers.begin(); index != numbers.end(); index += dimensions)
    for (std::int64_t i = 0; i < dimensions; ++i)
      if (index[i] < 0 || index[i] >= dense_shape[static_cast<std::size_t>(i)])
        throw InvalidArgument{fmt::format("index [{}] is outside of a sparse {}",
                                          fmt::join(index, index + dimensions, ", "), describe(dense_shape))};
}

SparseTensor SparseTensor::piece(int number, int pieces, Stream& stream) const {
  if (number < 0 || number >= pieces)
    throw InvalidArgument{fmt::format("piece {} of {}: expected one from 0 to below their number", number, pieces)};
  require_valid();
  const std::int64_t rows = dense_shape[0], least = rows / pieces, larger = rows % pieces;
  const std::int64_t first = number * least + std::min<std::int64_t>(number, larger);
  const std::int64_t count = least + (number < larger ? 1 : 0);

  const auto dimensions = static_cast<std::int64_t>(dense_shape.size());
  const std::size_t size = size_of(values.dtype());
  const auto numbers = indices.to_vector<std::int64_t>();
  const Tensor from = Tensor::on_host(values.view());
  std::vector<std::int64_t> kept_indices;
  std::vector<std::byte> kept_values;
  for (std::int64_t i = 0; i < values.count(); ++i) {
    const auto index = numbers.begin() + i * dimensions;
    if (*index < first || *index >= first + count) continue;
    kept_indices.push_back(*index - first);
    kept_indices.insert(kept_indices.end(), index + 1, index + dimensions);
    const std::byte* const value = from.view().data() + static_cast<std::size_t>(i) * size;
    kept_values.insert(kept_values.end(), value, value + size);
  }
  const auto kept = static_cast<std::int64_t>(kept_values.size() / size);
  SparseTensor made{.indices = Tensor::copy_of(Tensor::from(kept_indices, {kept, dimensions}).view(), stream),
                    .values = Tensor::uninitialised(from.dtype(), {kept}, stream),
                    .dense_shape = dense_shape};
  copy(TensorView{kept_values.data(), {kept}, from.dtype()}, made.values.view(), stream);
  made.dense_shape[0] = count;
  return made;
}

}  // namespace lockstep
