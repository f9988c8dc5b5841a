// The arithmetic of optimizers, which turns gradients into steps in one pass over flat memory.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <lockstep/core/tensor/tensor.hpp>
#include <lockstep/sync/update/update_step.hpp>

#include "core/base/parts.hpp"
#include "core/base/portable_functions.hpp"
#include "core/device/answer.hpp"

namespace lockstep::detail {

/// Operands of one call are f32 or f64, of one type and shape, and do not overlap; they are in memory of the device
/// that the kernels are for, on whose stream a GPU's are enqueued. Threads may share an object, and results do not
/// depend on where operands lie. InvalidArgument, before anything is written, for other operands, and for scalars that
/// are not finite or not what their comments require.
class UpdateKernels {
 public:
  virtual ~UpdateKernels() = default;

  /// One step of gradient descent: values -= learning_rate * (gradient + weight_decay * values). The decay is an L2
  /// penalty, as in PyTorch's SGD; without momentum it equals a decoupled one.
  virtual void sgd(const TensorView& values, const TensorView& gradient, const UpdateStep& step) const = 0;

  /// The same with momentum, in [0, 1):
  ///   velocity = momentum * velocity + (gradient + weight_decay * values)
  ///   values -= learning_rate * velocity
  virtual void momentum(const TensorView& values, const TensorView& gradient, const TensorView& velocity,
                        const UpdateStep& step, double momentum) const = 0;

  /// Adam with decoupled weight decay (Loshchilov and Hutter, Decoupled Weight Decay Regularization, 2019, algorithm 2;
  /// the decay is multiplied by the learning rate, as in PyTorch's AdamW). t is `step.number`:
  ///   first = beta1 * first + (1 - beta1) * gradient
  ///   second = beta2 * second + (1 - beta2) * gradient^2
  ///   values -= learning_rate * (first / (1 - beta1^t) / (sqrt(second / (1 - beta2^t)) + epsilon)
  ///                              + weight_decay * values)
  virtual void adamw(const TensorView& values, const TensorView& gradient, const TensorView& first,
                     const TensorView& second, const UpdateStep& step, const AdamWMoments& moments) const = 0;

  /// The sum of the squares of all elements of `parts`, each of which may be f32 or f64, in double. Its root is the
  /// norm of a gradient. Not finite if an element is not, or if the sum exceeds double's range.
  ///
  /// The bits are the same on every device, from the parts' values, their sizes and their order alone. Each part is cut
  /// into blocks of 4096 elements. In a block, sum l of 256 takes the elements l, l + 256, … in ascending order. Then
  /// the sums are folded, the upper half onto the lower, until one is left. The sums of all blocks of all parts, in
  /// order, are added up in the tree of fixed_order_sum.
  double sum_of_squares(std::span<const TensorView> parts) const { return start_sum_of_squares(parts).wait(); }

  /// The same without a wait.
  virtual Answer<double> start_sum_of_squares(std::span<const TensorView> parts) const = 0;

  /// The sum of each block of `part`, before they are added up. `sums` is f64 and has square_blocks(part.count())
  /// elements (square_blocks.hpp).
  virtual void block_squares(const TensorView& part, const TensorView& sums) const = 0;

  /// What sum_of_squares makes of the sums of all blocks, on the host.
  static double sum_of_blocks(std::vector<double> sums);
};

/// Those for the device of `stream`, which must outlive them. On the host, `functions` compute powers.
LOCKSTEP_PARTS_API std::unique_ptr<UpdateKernels> make_update_kernels(Functions functions, Stream& stream);

}  // namespace lockstep::detail
