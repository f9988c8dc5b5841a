// The numbers of one step of an optimizer.
#pragma once

#include <cstdint>

namespace lockstep::detail {

/// The scalars of an optimizer's step. They are rounded to the type of the operands first.
///
/// The memory of a gradient holds a sum over samples. The gradient of a step is sum / divisor * factor, element by
/// element: the mean over the samples, scaled down by clipping.
struct UpdateStep {
  double learning_rate;     ///< 0 or more
  double divisor = 1;       ///< positive: the number of samples
  double factor = 1;        ///< 0 or more: what clipping by the norm multiplies the gradient by
  double weight_decay = 0;  ///< 0 or more
  std::int64_t number = 1;  ///< of this step, counted from 1: Adam's t
};

/// Adam's parameters besides those of the step.
struct AdamWMoments {
  double beta1 = 0.9;     ///< in [0, 1): the fraction of the first moment that a step keeps
  double beta2 = 0.999;   ///< in [0, 1): the same for the second moment
  double epsilon = 1e-8;  ///< positive: added to the root of the second moment
};

class UpdateKernels;  ///< the arithmetic of an update, on the host or on a GPU

}  // namespace lockstep::detail
