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
  /// Steps between attestations, in which the replicas prove that they still hold the same; there is one at the end
  /// too. Nothing: never.
  std::optional<std::int64_t> attest_every;
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
/// the losses and everything told to `observer` but the times are the same bytes on one rank, and on every number of
/// them of which each has a power of two of the shards.
///
/// The shards of a joint model (nn::Model::joint) are computed together, inside of the merge_call: with `accumulate` a
/// micro-batch of every shard after the other, so what the model makes of a sample depends on those of its micro-batch
/// in all shards. A rank then has room for the activations and the gradients of all its shards at a time.
///
/// An attestation covers weights, optimizer state and moving averages, and is part of the agreement that ends its step:
/// DriftError on every rank where they differ, after `observer` was told.
FitResult fit(Strategy& strategy, nn::Model& model, Optimizer& optimizer, const TrainingSamples& data,
              const FitOptions& options, Observer& observer);

}  // namespace lockstep
