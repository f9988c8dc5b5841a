// The arithmetic of optimizers: gradients become steps, in one pass over flat memory.
#pragma once

#include <cstdint>
#include <span>

#include <lockstep/tensor/tensor.hpp>

namespace lockstep::ops {

/// What a step is told besides its operands. The scalars are rounded to the type of the operands first.
///
/// The memory of a gradient holds a sum over samples. The gradient of a step is that sum / divisor * factor, element by
/// element: the mean over the samples, made smaller where it was too long.
struct UpdateStep {
  double learning_rate;     ///< 0 or more
  double divisor = 1;       ///< positive: the number of samples
  double factor = 1;        ///< 0 or more: what clipping by the norm leaves of the gradient
  double weight_decay = 0;  ///< 0 or more
  std::int64_t number = 1;  ///< of this step, counted from 1: Adam's t
};

/// Adam's numbers besides those of the step.
struct AdamWMoments {
  double beta1 = 0.9;     ///< from 0 to below 1: what the first moment keeps from step to step
  double beta2 = 0.999;   ///< the same of the second moment
  double epsilon = 1e-8;  ///< positive: added to the root of the second moment
};

/// A part of Kernels (kernels.hpp), whose rules hold here as well. Operands of one call have one type and shape.
/// InvalidArgument for scalars that are not what their comments ask for, or not finite, before anything is written.
class UpdateKernels {
 public:
  virtual ~UpdateKernels() = default;

  /// One step of gradient descent: values -= learning_rate * (gradient + weight_decay * values). The decay is an L2
  /// penalty, as in PyTorch's SGD; without momentum there is no difference to a decoupled one.
  virtual void sgd(const TensorView& values, const TensorView& gradient, const UpdateStep& step) const = 0;

  /// The same with momentum, from 0 to below 1:
  ///   velocity = momentum * velocity + (gradient + weight_decay * values)
  ///   values -= learning_rate * velocity
  virtual void momentum(const TensorView& values, const TensorView& gradient, const TensorView& velocity,
                        const UpdateStep& step, double momentum) const = 0;

  /// Adam with decoupled weight decay (Loshchilov and Hutter, Decoupled Weight Decay Regularization, 2019, algorithm 2;
  /// the decay multiplied by the learning rate, as in PyTorch's AdamW), where t is `step.number`:
  ///   first = beta1 * first + (1 - beta1) * gradient
  ///   second = beta2 * second + (1 - beta2) * gradient^2
  ///   values -= learning_rate * (first / (1 - beta1^t) / (sqrt(second / (1 - beta2^t)) + epsilon)
  ///                              + weight_decay * values)
  virtual void adamw(const TensorView& values, const TensorView& gradient, const TensorView& first,
                     const TensorView& second, const UpdateStep& step, const AdamWMoments& moments) const = 0;

  /// The sum of the squares of all elements of `parts`, which may be of f32 and of f64, in double: what the norm of a
  /// gradient is the root of. Not finite where an element is not, or where the sum is beyond double's range.
  ///
  /// The same bits on every device, from the parts' values, their sizes and their order alone. Each part is cut into
  /// blocks of 4096 elements. In a block, sum l of 256 takes the elements l, l + 256, … in ascending order, and the
  /// sums are folded: the upper half is added onto the lower until one is left. The sums of all blocks of all parts, in
  /// order, are added up in the tree of fixed_order_sum.
  virtual double sum_of_squares(std::span<const TensorView> parts) const = 0;
};

}  // namespace lockstep::ops
