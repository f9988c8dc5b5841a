// Batch normalisation: a layer that brings every channel of a batch to one mean and variance.
#pragma once

#include <cstdint>
#include <string>

#include <lockstep/models/nn/gradient_buffer.hpp>
#include <lockstep/models/ops/kernels.hpp>
#include <lockstep/sync/strategy/strategy.hpp>

#include "models/ops/image_kernels.hpp"

namespace lockstep::nn {

struct BatchNormOptions {
  std::string name = "batch_norm";
  std::int64_t channels;
  double epsilon = 1e-5;  ///< added to the variance
  double momentum = 0.9;  ///< fraction of the moving averages that a step keeps
  DType dtype = DType::f32;
};

/// y = gamma * (x - mean) / sqrt(variance + epsilon) + beta for x [samples, ..., channels], per channel. In training,
/// mean and variance are those of the samples that are normalised together, and are the layer's statistics. In
/// evaluation, they are the moving averages of the statistics. Holds no activations; its caller does.
///
/// Statistics are 2 * channels numbers, the means and then the variances, as sums over samples. Those of shards add up,
/// and a shard weighs as much as it has samples. If each shard is normalised by itself, the average of the shards'
/// variances leaves out the distances between their means, so it is a little below the variance of the batch. If all
/// shards are normalised together, squares are taken around the mean of all and add up to the variance of the batch.
///
/// Everything but the constructor is LOCAL and needs sealed variables (ContextError). InvalidArgument for operands that
/// do not fit (kernels.hpp).
class BatchNorm {
 public:
  /// COLL. Creates the trainable variables "<name>/gamma" (ones) and "<name>/beta" (zeros), then the sync-on-read
  /// variables "<name>/moving_mean" (zeros) and "<name>/moving_variance" (ones), whose value is the mean over the
  /// replicas. All are [channels]. Before that, InvalidArgument for less than one channel, a dtype other than f32 and
  /// f64, an epsilon that is not positive, or a momentum outside [0, 1).
  BatchNorm(Strategy& strategy, const BatchNormOptions& options, Here here = Here::current());

  const Variable& gamma() const { return gamma_; }
  const Variable& beta() const { return beta_; }
  const SyncOnReadVariable& moving_mean() const { return moving_mean_; }
  const SyncOnReadVariable& moving_variance() const { return moving_variance_; }

  /// Number of elements in the statistics.
  std::int64_t statistics() const { return 2 * channels_; }

  /// The two parts of statistics [2 * channels].
  TensorView means(const TensorView& statistics) const { return statistics.slice(0, channels_); }
  TensorView variances(const TensorView& statistics) const { return statistics.slice(channels_, channels_); }

  /// Overwrites the means in `statistics` with those of x.
  void measure_means(const ops::Kernels& kernels, const TensorView& x, const TensorView& statistics) const;

  /// Overwrites the variances in `statistics` with those of x, around the mean of `whole`, whose variances are not
  /// read. x holds all samples of `whole` or a part of them.
  void measure_variances(const ops::Kernels& kernels, const TensorView& x, const ops::Normalisation& whole,
                         const TensorView& statistics) const;

  /// Normalisation by `statistics`, which are those of `samples` samples.
  ops::Normalisation by(const TensorView& statistics, std::int64_t samples) const;

  /// Normalisation for evaluation.
  ops::Normalisation by_moving_averages() const;

  /// Overwrites y.
  void forward(const ops::Kernels& kernels, const TensorView& x, const ops::Normalisation& by,
               const TensorView& y) const;

  /// The gradients of gamma and beta, summed over the samples of x. Overwrites both in `gradients`. The caller, who
  /// needs them for `backward_input`, says when they are ready.
  void backward(const ops::Kernels& kernels, const TensorView& x, const ops::Normalisation& by, const TensorView& dy,
                const GradientBuffer& gradients) const;

  /// The gradient of x. `d_parameters` [2 * channels] holds the gradients of gamma and then of beta, summed over all
  /// samples that were normalised together; x may hold a part of those. Overwrites dx, which may be dy.
  void backward_input(const ops::Kernels& kernels, const TensorView& x, const ops::Normalisation& by,
                      const TensorView& dy, const TensorView& d_parameters, const TensorView& dx) const;

  /// Absorbs the statistics of a step, summed over its shards, into this replica's moving averages: average = momentum
  /// * average + (1 - momentum) * statistics / samples. `samples`, the step's number of samples, is positive.
  void absorb(const ops::Kernels& kernels, const TensorView& statistics, std::int64_t samples) const;

 private:
  std::int64_t channels_;
  double epsilon_;
  double momentum_;
  MirroredVariable gamma_;
  MirroredVariable beta_;
  SyncOnReadVariable moving_mean_;
  SyncOnReadVariable moving_variance_;
};

}  // namespace lockstep::nn
