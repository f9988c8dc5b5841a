// Tensors in memory that this library owns in its own ways.
#pragma once

#include <memory>
#include <utility>

#include <lockstep/core/tensor/tensor.hpp>

namespace lockstep {

template <>
struct detail::Inside<Tensor> {
  static Tensor make(std::shared_ptr<const Buffer> buffer, TensorView view) {
    return Tensor{std::move(buffer), std::move(view)};
  }
};

/// A tensor in memory that `buffer` owns.
inline Tensor tensor_in(std::shared_ptr<const Buffer> buffer, TensorView view) {
  return detail::Inside<Tensor>::make(std::move(buffer), std::move(view));
}

}  // namespace lockstep
