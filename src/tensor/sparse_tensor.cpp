#include <algorithm>
#include <cstring>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <lockstep/base/error.hpp>
#include <lockstep/tensor/sparse_tensor.hpp>

#include "base/element_count.hpp"
#include "base/element_type.hpp"

namespace lockstep {

void require_valid(const SparseTensor& tensor) {
  const TensorView indices = tensor.indices.view(), values = tensor.values.view();
  const auto dimensions = static_cast<std::int64_t>(tensor.dense_shape.size());
  element_count(tensor.dense_shape);
  if (dimensions == 0 || values.shape().size() != 1 || indices.dtype() != DType::i64 ||
      indices.shape() != Shape{values.count(), dimensions} || indices.device() != values.device())
    throw InvalidArgument{
        fmt::format("a sparse {} of values {} at indices {}: expected a dense shape of one or more extents, values [n] "
                    "and i64 indices [n, extents] on one device",
                    describe(tensor.dense_shape), describe(values), describe(indices))};
  const auto numbers = indices.to_vector<std::int64_t>();
  for (auto index = numbers.begin(); index != numbers.end(); index += dimensions)
    for (std::int64_t i = 0; i < dimensions; ++i)
      if (index[i] < 0 || index[i] >= tensor.dense_shape[static_cast<std::size_t>(i)])
        throw InvalidArgument{fmt::format("index [{}] is outside of a sparse {}",
                                          fmt::join(index, index + dimensions, ", "), describe(tensor.dense_shape))};
}

SparseTensor piece_of(const SparseTensor& whole, int piece, int pieces, Stream& stream) {
  if (piece < 0 || piece >= pieces)
    throw InvalidArgument{fmt::format("piece {} of {}: expected one from 0 to below their number", piece, pieces)};
  require_valid(whole);
  const std::int64_t rows = whole.dense_shape[0], least = rows / pieces, larger = rows % pieces;
  const std::int64_t first = piece * least + std::min<std::int64_t>(piece, larger);
  const std::int64_t count = least + (piece < larger ? 1 : 0);

  const auto dimensions = static_cast<std::int64_t>(whole.dense_shape.size());
  const std::size_t size = size_of(whole.values.dtype());
  const auto numbers = whole.indices.to_vector<std::int64_t>();
  const Tensor from = Tensor::on_host(whole.values.view());
  std::vector<std::int64_t> indices;
  std::vector<std::byte> values;
  for (std::int64_t i = 0; i < whole.values.count(); ++i) {
    const auto index = numbers.begin() + i * dimensions;
    if (*index < first || *index >= first + count) continue;
    indices.push_back(*index - first);
    indices.insert(indices.end(), index + 1, index + dimensions);
    const std::byte* const value = from.view().data() + static_cast<std::size_t>(i) * size;
    values.insert(values.end(), value, value + size);
  }
  const auto kept = static_cast<std::int64_t>(values.size() / size);
  SparseTensor made{.indices = Tensor::copy_of(Tensor::from(indices, {kept, dimensions}).view(), stream),
                    .values = Tensor::uninitialised(from.dtype(), {kept}, stream),
                    .dense_shape = whole.dense_shape};
  copy(TensorView{values.data(), {kept}, from.dtype()}, made.values.view(), stream);
  made.dense_shape[0] = count;
  return made;
}

}  // namespace lockstep
