// The scalars of a step in the form that update_rules.hpp takes.
#pragma once

#include <cmath>
#include <cstdint>

#include "core/base/portable_functions.hpp"
#include "sync/update/update_kernels.hpp"
#include "sync/update/update_rules.hpp"

namespace lockstep::detail {

template <class T>
StepScalars<T> scalars_of(const UpdateStep& step) {
  return {.learning_rate = static_cast<T>(step.learning_rate),
          .divisor = static_cast<T>(step.divisor),
          .factor = static_cast<T>(step.factor),
          .weight_decay = static_cast<T>(step.weight_decay)};
}

/// Differences and powers are computed in double, then rounded: 1 - beta2 would have few bits left in a float.
template <class T>
AdamWScalars<T> scalars_of(const AdamWMoments& moments, const UpdateStep& step, Functions functions) {
  const auto power = [&](double beta) {
    return functions == Functions::portable ? lockstep::portable::power(beta, static_cast<std::uint64_t>(step.number))
                                            : std::pow(beta, static_cast<double>(step.number));
  };
  return {.beta1 = static_cast<T>(moments.beta1),
          .rest1 = static_cast<T>(1 - moments.beta1),
          .beta2 = static_cast<T>(moments.beta2),
          .rest2 = static_cast<T>(1 - moments.beta2),
          .correction1 = static_cast<T>(1 - power(moments.beta1)),
          .correction2 = static_cast<T>(1 - power(moments.beta2)),
          .epsilon = static_cast<T>(moments.epsilon)};
}

}  // namespace lockstep::detail
