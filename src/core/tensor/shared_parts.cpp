#include "core/tensor/shared_parts.hpp"

#include <utility>

namespace lockstep::detail {

Tensor rows_of(const Tensor& whole, std::int64_t first, std::int64_t rows) {
  Shape shape = whole.shape();
  const std::int64_t row = shape[0] == 0 ? 0 : whole.count() / shape[0];
  shape[0] = rows;
  const TensorView part = whole.view().reshaped({whole.count()}).slice(first * row, rows * row);
  return whole.sharing(part.reshaped(std::move(shape)));
}

Tensor on_host(const Tensor& tensor) {
  return tensor.device() == DeviceKind::cpu ? tensor : Tensor::on_host(tensor.view());
}

}  // namespace lockstep::detail
