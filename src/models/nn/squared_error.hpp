// The loss of a model that predicts one number for each sample.
#pragma once

#include <lockstep/core/tensor/tensor.hpp>
#include <lockstep/models/input/batch.hpp>
#include <lockstep/models/ops/kernels.hpp>

namespace lockstep::nn {

/// Blocking. Of outputs [rows, 1] and the labels of `shard`, [rows] of f32 or f64: the sum of (output - label)^2 over
/// the samples present, with their residuals. Computed in double on the host, sample after sample, whatever the device:
/// they are few numbers.
ops::Kernels::BatchLoss squared_error(const TensorView& outputs, const SampleBatch& shard);

/// The same without residuals. Overwrites the outputs by the gradient of that sum: 2 (output - label), and zero in the
/// rows of padding. `stream` is that of their device.
ops::Kernels::BatchLoss squared_error_with_gradient(const TensorView& outputs, const SampleBatch& shard,
                                                    Stream& stream);

}  // namespace lockstep::nn
