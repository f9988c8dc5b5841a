// Convolutions of f32 by oneDNN.
//
// Images are read and written in place, with channels innermost, for which the library has fast code. Weights are
// small, so every call brings them into the layout that the library asks for, a different one for each direction. What
// the library makes for a shape is kept.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include <lockstep/ops/kernels.hpp>

#include "ops/image_checks.hpp"

namespace lockstep::ops {

/// Operands must have been checked. DeviceError if the library fails. Threads may share an object.
class Convolutions {
 public:
  explicit Convolutions(Threads threads);
  ~Convolutions();

  /// False without elements: the library is not called for nothing.
  static bool can_do(DType dtype, const ConvolutionSizes& sizes);

  void forward(const ConvolutionSizes& sizes, const TensorView& x, const TensorView& weight, const TensorView& bias,
               const TensorView& y) const;
  void gradients(const ConvolutionSizes& sizes, const TensorView& x, const TensorView& dy, const TensorView& d_weight,
                 const TensorView& d_bias) const;
  void input_gradient(const ConvolutionSizes& sizes, const TensorView& dy, const TensorView& weight,
                      const TensorView& dx) const;

 private:
  enum class Direction : std::uint8_t { forward, gradients, input_gradient };
  class Plan;

  using Key = std::pair<Direction, ConvolutionSizes>;

  std::unique_ptr<Plan> take_plan(const Key& key) const;
  void give_back(const Key& key, std::unique_ptr<Plan> plan) const;

  template <class Work>
  void run(Direction direction, const ConvolutionSizes& sizes, Work&& work) const;

  Threads threads_;
  mutable std::mutex mutex_;
  mutable std::map<Key, std::vector<std::unique_ptr<Plan>>> plans_;  ///< that no thread uses
};

}  // namespace lockstep::ops
