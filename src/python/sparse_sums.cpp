#include "python/sparse_sums.hpp"

#include <cstring>
#include <vector>

#include <ATen/ATen.h>

namespace lockstep::python {
namespace {

constexpr std::int64_t bytes_per_index = sizeof(std::int64_t);

std::int64_t values_of_row(const at::Tensor& like) {
  return c10::multiply_integers(like.sizes().slice(static_cast<std::size_t>(like.sparse_dim())));
}

/// The bytes of a contiguous tensor, cut into rows.
at::Tensor in_bytes(const at::Tensor& tensor, std::int64_t rows, std::int64_t bytes) {
  return at::from_blob(tensor.data_ptr(), {rows, bytes}, at::kByte);
}

/// Columns of `bytes` as elements of a type, of which a row has `count`.
at::Tensor elements_of(const at::Tensor& bytes, std::int64_t first, std::int64_t count, at::ScalarType type) {
  at::Tensor elements = at::empty({bytes.size(0), count}, type);
  const auto width = count * static_cast<std::int64_t>(elements.element_size());
  in_bytes(elements, bytes.size(0), width).copy_(bytes.narrow(1, first, width));
  return elements;
}

/// By how much the place of an element in the dense tensor grows with each index.
at::Tensor strides_of(at::IntArrayRef sizes) {
  std::vector<std::int64_t> strides(sizes.size(), 1);
  for (std::size_t i = sizes.size(); i-- > 1;) strides[i - 1] = strides[i] * sizes[i];
  return at::tensor(strides, at::kLong);
}

}  // namespace

Tensor rows_of(const at::Tensor& sparse) {
  const at::Tensor tensor = sparse.detach().coalesce();
  const at::Tensor indices = tensor.indices().t().contiguous(), values = tensor.values().contiguous();
  const std::int64_t rows = indices.size(0), index_bytes = tensor.sparse_dim() * bytes_per_index,
                     value_bytes = values_of_row(tensor) * static_cast<std::int64_t>(values.element_size());
  Tensor made = Tensor::uninitialised(DType::u8, {rows, index_bytes + value_bytes});
  at::Tensor bytes = at::from_blob(made.view().data(), {rows, index_bytes + value_bytes}, at::kByte);
  bytes.narrow(1, 0, index_bytes).copy_(in_bytes(indices, rows, index_bytes));
  bytes.narrow(1, index_bytes, value_bytes).copy_(in_bytes(values, rows, value_bytes));
  return made;
}

at::Tensor sum_of_rows(const Tensor& rows, const at::Tensor& like) {
  const std::int64_t dimensions = like.sparse_dim();
  const at::IntArrayRef sizes = like.sizes().slice(0, static_cast<std::size_t>(dimensions));
  const at::ScalarType type = like.scalar_type(), wide = type == at::kHalf || type == at::kBFloat16 ? at::kFloat : type;
  const at::Tensor bytes = at::from_blob(rows.view().data(), {rows.shape()[0], rows.shape()[1]}, at::kByte);
  const at::Tensor indices = elements_of(bytes, 0, dimensions, at::kLong);
  const at::Tensor values = elements_of(bytes, dimensions * bytes_per_index, values_of_row(like), type);

  const at::Tensor strides = strides_of(sizes);
  const auto [places, row_of] = at::_unique((indices * strides).sum(1), true, true);
  const at::Tensor sums =
      at::zeros({places.size(0), values.size(1)}, wide).index_add_(0, row_of, values.to(wide)).to(type);
  const at::Tensor found =
      places.unsqueeze(0).div(strides.unsqueeze(1), "floor").remainder(at::tensor(sizes, at::kLong).unsqueeze(1));
  std::vector<std::int64_t> shape{places.size(0)};
  for (const std::int64_t size : like.sizes().slice(static_cast<std::size_t>(dimensions))) shape.push_back(size);
  return at::_sparse_coo_tensor_unsafe(found, sums.reshape(shape), like.sizes(), like.options(), true);
}

}  // namespace lockstep::python
