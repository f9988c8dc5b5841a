// What kernels do for the models of this library alone.
#pragma once

#include <cstdint>

#include <lockstep/models/ops/kernels.hpp>

#include "models/ops/answer.hpp"

namespace lockstep {

template <>
struct detail::Inside<ops::Kernels> {
  const ops::Kernels& kernels;

  // As softmax_cross_entropy, without a wait. On a GPU, the answer throws if a label is no class; nothing else is
  // written then.
  Answer<ops::Kernels::BatchLoss> start_softmax_cross_entropy(const ops::Kernels::Matrix& logits,
                                                              const TensorView& labels, std::int64_t samples,
                                                              const ops::Kernels::Matrix& d_logits) const {
    return kernels.start_softmax_cross_entropy(logits, labels, samples, d_logits);
  }
  Answer<ops::Kernels::BatchLoss> start_softmax_cross_entropy(const ops::Kernels::Matrix& logits,
                                                              const TensorView& labels, std::int64_t samples) const {
    return kernels.start_softmax_cross_entropy(logits, labels, samples);
  }
};

namespace ops {

inline detail::Inside<Kernels> inside(const Kernels& kernels) {
  return {kernels};
}

}  // namespace ops
}  // namespace lockstep
