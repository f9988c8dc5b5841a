// A small convnet for the tests of what it computes.
#pragma once

#include <cstdint>
#include <memory>

#include "models/nn/convnet.hpp"
#include "nn_support.hpp"
#include "sync/group/local_group.hpp"
#include "sync/strategy/inside.hpp"

namespace lockstep::nn {

/// For images of 9 x 8: an odd extent, so that pooling leaves some out.
inline ConvnetOptions small_convnet(DType dtype, ConvnetOptions::BatchNorm batch_norm = ConvnetOptions::BatchNorm::none,
                                    double dropout = 0) {
  return {.height = 9,
          .width = 8,
          .filters = {3, 4},
          .hidden = 5,
          .classes = 3,
          .batch_norm = batch_norm,
          .dropout = dropout,
          .dtype = dtype,
          .seed = 3};
}

/// A sealed convnet on a strategy of one replica, whose biases are not zero.
struct ConvnetProgram {
  std::unique_ptr<ReplicaGroup> group = make_local_group();
  Strategy strategy = strategy_on(*group);
  Convnet model;
  Tensor statistics;

  explicit ConvnetProgram(const ConvnetOptions& options, SharedKernels kernels = reference())
      : model{strategy, options, std::move(kernels)}, statistics{Tensor::zeros(options.dtype, {model.statistics()})} {
    strategy.seal();
    for (const Variable& variable : model.variables())
      if (variable.name().ends_with("bias") || variable.name().ends_with("beta"))
        for (std::int64_t i = 0; i < variable.local().count(); ++i)
          set(variable.local(), i, 0.05 * static_cast<double>(i % 5));
  }

  GradientBuffer buffer() {
    return GradientBuffer{strategy.store(), model.variables()}.with_statistics(statistics.view());
  }
};

inline SampleBatch images_from(std::int64_t first, std::int64_t samples, std::int64_t capacity, DType dtype) {
  return samples_from(first, samples, capacity, dtype, {.features = 72, .classes = 3});
}

}  // namespace lockstep::nn
