// An optimizer's step on one element, for float and double. Each operation rounds once, so the host and a GPU give the
// same bits. Scalars of type T are those of UpdateStep and AdamWMoments, rounded.
#pragma once

#include <cmath>

#include "core/base/host_device.hpp"

namespace lockstep::detail {

template <class T>
struct StepScalars {
  T learning_rate;
  T divisor;
  T factor;
  T weight_decay;
};

template <class T>
struct AdamWScalars {
  T beta1, rest1;  ///< beta1 and 1 - beta1
  T beta2, rest2;
  T correction1;  ///< 1 - beta1^t
  T correction2;
  T epsilon;
};

template <class T>
LOCKSTEP_HOST_DEVICE T gradient_of(T sum, const StepScalars<T>& step) {
  return sum / step.divisor * step.factor;
}

template <class T>
LOCKSTEP_HOST_DEVICE void apply_sgd(T& value, T sum, const StepScalars<T>& step) {
  value -= step.learning_rate * (gradient_of(sum, step) + step.weight_decay * value);
}

template <class T>
LOCKSTEP_HOST_DEVICE void apply_momentum(T& value, T sum, T& velocity, const StepScalars<T>& step, T momentum) {
  const T kept = momentum * velocity + (gradient_of(sum, step) + step.weight_decay * value);
  velocity = kept;
  value -= step.learning_rate * kept;
}

template <class T>
LOCKSTEP_HOST_DEVICE void apply_adamw(T& value, T sum, T& first, T& second, const StepScalars<T>& step,
                                      const AdamWScalars<T>& adam) {
  const T gradient = gradient_of(sum, step);
  const T mean = adam.beta1 * first + adam.rest1 * gradient;
  const T square = adam.beta2 * second + adam.rest2 * (gradient * gradient);
  first = mean;
  second = square;
  const T direction = mean / adam.correction1 / (std::sqrt(square / adam.correction2) + adam.epsilon);
  value -= step.learning_rate * (direction + step.weight_decay * value);
}

}  // namespace lockstep::detail
