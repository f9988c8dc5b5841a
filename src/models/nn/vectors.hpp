// Tensors with one dimension.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <lockstep/core/tensor/tensor.hpp>

namespace lockstep::nn {

/// The elements of `view`, in their order.
inline TensorView flattened(const TensorView& view) {
  return view.reshaped({view.count()});
}

/// `count` ones, f64 or f32, in host memory.
inline Tensor ones(DType dtype, std::int64_t count) {
  const auto size = static_cast<std::size_t>(count);
  return dtype == DType::f64 ? Tensor::from(std::vector<double>(size, 1), {count})
                             : Tensor::from(std::vector<float>(size, 1), {count});
}

}  // namespace lockstep::nn
