// Convolutions of f32, and of bf16 where the processor has instructions for it, by oneDNN.
//
// Images are read and written in place, with channels innermost, for which the library has fast code. Weights are
// small, so every call brings them into the layout that the library asks for, a different one for each direction. What
// the library makes for a shape is kept.
#pragma once

#include <compare>
#include <cstdint>
#include <memory>

#include <lockstep/models/ops/kernels.hpp>

#include "models/ops/image_checks.hpp"

namespace lockstep::ops {

/// Operands must have been checked. DeviceError if the library fails. Threads may share an object.
class Convolutions {
 public:
  explicit Convolutions(Kernels::Threads threads);
  ~Convolutions();

  /// For activations of `dtype`. False without elements: the library is not called for nothing.
  static bool can_do(DType dtype, const ConvolutionSizes& sizes);

  void forward(const ConvolutionSizes& sizes, const TensorView& x, const TensorView& weight, const TensorView& bias,
               const TensorView& y) const;
  void gradients(const ConvolutionSizes& sizes, const TensorView& x, const TensorView& dy, const TensorView& d_weight,
                 const TensorView& d_bias) const;
  void input_gradient(const ConvolutionSizes& sizes, const TensorView& dy, const TensorView& weight,
                      const TensorView& dx) const;

 private:
  enum class Direction : std::uint8_t { forward, gradients, input_gradient };
  struct Key {
    Direction direction;
    DType dtype;  ///< of the activations
    ConvolutionSizes sizes;

    auto operator<=>(const Key&) const = default;
  };
  class Plan;
  class Kept;

  template <class Work>
  void run(const Key& key, Work&& work) const;

  Kernels::Threads threads_;
  std::unique_ptr<Kept> kept_;
};

}  // namespace lockstep::ops
