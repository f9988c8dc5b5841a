// The training loop: sharded steps, evaluations, and nothing that depends on the number of ranks.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include <lockstep/input/sample_source.hpp>
#include <lockstep/nn/model.hpp>
#include <lockstep/optim/optimizer.hpp>
#include <lockstep/strategy/strategy.hpp>
#include <lockstep/train/fault.hpp>
#include <lockstep/train/observer.hpp>

namespace lockstep {

/// The same on every rank; both must outlive what is given them.
struct TrainingSamples {
  const SampleSource& train;
  const SampleSource& test;
};

struct FitOptions {
  std::int64_t global_batch = 256;
  std::int64_t steps = 1;
  std::uint64_t seed = 1;  ///< of the order of the samples
  int shards = 8;          ///< a multiple of the number of ranks
  int accumulate = 1;      ///< micro-batches that each shard is computed in
  /// Steps between evaluations; nothing: at the end of each epoch. There is always one at the end.
  std::optional<std::int64_t> evaluate_every;
  std::optional<Fault> fault;
};

struct FitResult {
  std::int64_t steps = 0;
  std::int64_t samples = 0;
  double seconds = 0;     ///< the training loop without evaluations
  double train_loss = 0;  ///< mean over the labels of the last epoch's worth of steps
  EvaluationReport last_evaluation{};
};

/// COLL, blocking. Trains `model` on `data`.
///
/// A step is one Strategy::run: each rank computes the gradients of its shards of the global batch, adds them up in the
/// fixed order, and takes part in one merge_call. A shard is computed in `accumulate` micro-batches, one after the
/// other, whose gradients are added up: activations take the memory of one of them, gradients that of one more. Another
/// number of micro-batches is another order of sums, and so other last bits. The samples of a step are a function of
/// (seed, step, global batch) alone, its sums one tree over the shards: so with the same number of shards the weights,
/// the losses and everything told to `observer` but the times are the same bytes on every number of ranks that divides
/// them.
FitResult fit(Strategy& strategy, nn::Model& model, Optimizer& optimizer, const TrainingSamples& data,
              const FitOptions& options, Observer& observer);

}  // namespace lockstep
