#include "torch/sparse_rows.hpp"

#include <algorithm>
#include <memory>
#include <numeric>

#include <ATen/Functions.h>

#include "core/device/device.hpp"
#include "core/tensor/inside.hpp"
#include "sync/step/rows.hpp"
#include "torch/replica.hpp"

namespace lockstep::libtorch {
namespace {

at::ScalarType sum_type_of(const at::Tensor& table) {
  return table.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

/// The same memory, of a contiguous tensor on the host.
Tensor shared(const at::Tensor& tensor) {
  const auto own = std::make_shared<const at::Tensor>(tensor);
  return lockstep::tensor_in(std::shared_ptr<const Buffer>{own, nullptr}, view_of(tensor));
}

Shape shape_of(const at::Tensor& tensor) {
  return {tensor.sizes().begin(), tensor.sizes().end()};
}

}  // namespace

IndexedSlices no_rows_of(const at::Tensor& table) {
  std::vector<std::int64_t> shape = table.sizes().vec();
  shape.front() = 0;
  return {shared(at::empty(shape, sum_type_of(table))), shared(at::empty({0}, at::kLong)), shape_of(table)};
}

IndexedSlices rows_of(const at::Tensor& gradient, TorchDevice& device) {
  const at::NoGradGuard plain;
  const at::ScalarType type = sum_type_of(gradient);
  if (!gradient.is_sparse() || gradient.sparse_dim() != 1) {
    const at::Tensor dense = gradient.is_sparse() ? gradient.to_dense() : gradient;
    // A copy: autograd's tensor may be changed in place by the next pass.
    const at::Tensor values = device.on_host(dense).to(type, false, true).contiguous();
    return {shared(values), shared(at::arange(dense.size(0), at::kLong)), shape_of(gradient)};
  }
  const at::Tensor indices = device.on_host(gradient._indices()).select(0, 0).contiguous();
  const at::Tensor values = device.on_host(gradient._values()).to(type).contiguous();
  const IndexedSlices slices{shared(values), shared(indices), shape_of(gradient)};
  return sum_rows({&slices, 1});
}

at::Tensor values_of(const IndexedSlices& rows) {
  const TensorView view = rows.values.view();
  return at::from_blob(
      view.data(), at::IntArrayRef{view.shape().data(), view.shape().size()}, [owner = rows.values](void*) {},
      at::TensorOptions{}.dtype(type_of(view.dtype())));
}

at::Tensor sparse_gradient(const IndexedSlices& rows, const at::Tensor& table) {
  const at::NoGradGuard plain;
  at::Tensor indices = at::empty({1, rows.indices.count()}, at::kLong);
  std::ranges::copy(rows.indices.view().elements<std::int64_t>(), indices.data_ptr<std::int64_t>());
  const at::Tensor values = values_of(rows).to(table.options());
  return at::_sparse_coo_tensor_unsafe(indices.to(table.device()), values, table.sizes())._coalesced_(true);
}

IndexedSlices slices_of(const IndexedSlices& rows, const at::Tensor& table) {
  return {shared(values_of(rows).to(table.scalar_type())), rows.indices, rows.dense_shape};
}

}  // namespace lockstep::libtorch
