#include "models/nn/squared_error.hpp"

#include <cmath>
#include <cstddef>
#include <vector>

#include <lockstep/core/base/dtype.hpp>

#include "models/nn/shard_checks.hpp"

namespace lockstep::nn {
namespace {

template <class Narrow>
Tensor rounded(const std::vector<double>& values, const Shape& shape) {
  std::vector<Narrow> elements;
  for (const double value : values) elements.emplace_back(static_cast<float>(value));
  return Tensor::from(elements, shape);
}

/// Copies `values` into `view`, which has as many elements of f32, f64 or bf16.
void write(const std::vector<double>& values, const TensorView& view, Stream& stream) {
  const Tensor source = view.dtype() == DType::f64   ? Tensor::from(values, view.shape())
                        : view.dtype() == DType::f32 ? rounded<float>(values, view.shape())
                                                     : rounded<BFloat16>(values, view.shape());
  copy(source.view(), view, stream);
  stream.synchronize();  // before the source is gone
}

std::vector<double> labels_of(const SampleBatch& shard) {
  return to_doubles(first_rows(shard.labels.view(), shard.samples));
}

}  // namespace

ops::Kernels::BatchLoss squared_error(const TensorView& outputs, const SampleBatch& shard) {
  const std::vector<double> predicted = to_doubles(first_rows(outputs, shard.samples)), labels = labels_of(shard);
  ops::Kernels::BatchLoss result{.residuals = ops::Kernels::BatchLoss::Residuals{}};
  for (std::size_t i = 0; i < labels.size(); ++i) {
    const double error = predicted[i] - labels[i];
    result.loss_sum += error * error;
    result.residuals->absolute += std::abs(error);
    result.residuals->labels += labels[i];
    result.residuals->squares += labels[i] * labels[i];
  }
  return result;
}

ops::Kernels::BatchLoss squared_error_with_gradient(const TensorView& outputs, const SampleBatch& shard,
                                                    Stream& stream) {
  std::vector<double> gradient = to_doubles(first_rows(outputs, shard.samples));
  const std::vector<double> labels = labels_of(shard);
  ops::Kernels::BatchLoss result;
  for (std::size_t i = 0; i < labels.size(); ++i) {
    const double error = gradient[i] - labels[i];
    result.loss_sum += error * error;
    gradient[i] = 2 * error;
  }
  gradient.resize(static_cast<std::size_t>(outputs.count()));
  write(gradient, outputs, stream);
  return result;
}

}  // namespace lockstep::nn
