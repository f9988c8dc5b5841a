// What a training step consists of, and what it costs that its bits do not depend on the number of ranks.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include <lockstep/job/runtime/runtime.hpp>

#include "apps/lockstep-bench/report.hpp"
#include "apps/lockstep-bench/step_task.hpp"
#include "core/order/shard_request.hpp"

namespace lockstep::bench {

class MpiBaseline;

struct StepOptions {
  static constexpr const char* name = "step";

  StepModel model = StepModel::mlp;
  /// If empty: 256 for mlp, 128 for convnet, 16 for gpt.
  std::optional<std::int64_t> global_batch;
  std::int64_t hidden = default_hidden;
  ShardRequest shards;
  int threads = 1;         ///< of each rank
  std::int64_t steps = 5;  ///< in a block
  std::int64_t warm_up = 1;
  std::int64_t iterations = 20;
  nn::Model::Precision precision = nn::Model::Precision::full;
  ReductionOptions reductions;        ///< of all steps, as the runtime has them
  std::filesystem::path checkpoints;  ///< the folder to save some in; empty if that is not to be measured

  /// What turns are taken between: bench_step, or bench_step_cost.
  enum class Compare : std::uint8_t { shards, kernels, trace, parts, audit, ledger, overlap };
  Compare compare = Compare::shards;
};

/// The one asked for, or the model's.
std::int64_t global_batch_of(const StepOptions& options);

/// COLL. If `reductions` compress gradients or have the optimizer in slices, adds the type, or "none", and the mean
/// over the ranks of `state_bytes`.
void add_reductions(Row& row, const ReductionOptions& reductions, std::int64_t state_bytes, MpiBaseline& mpi);

/// COLL. How many shards a step has. ConfigError, naming --shards, for a number that does not fit the ranks.
int shards_of(const StepOptions& options, Runtime& runtime);

/// Global batches of samples in memory. Training starts over after the last.
inline constexpr std::int64_t step_batches = 16;

/// COLL, on the CPU. Trains one model with the number of shards asked for and another with one shard per rank; or, both
/// with that number of shards, one in bf16 and another in full precision; or one by the reference kernels and another
/// by the kernels of a usual run (Compare::kernels). They take turns: an iteration is a block of steps of each. `add`
/// gets a row for each of the two, or only one if the numbers are the same; rows are the same on every rank. A row has
/// the time of a step and its parts, which add up to it. These are means over the ranks, and over the middle half of
/// all steps by length. `ratio` compares the time of a step with that in the last row: it is the median over the
/// iterations of the ratio of the blocks' medians. `floor` is the time that the step's products would take if all of
/// them were as fast as a large one, which each rank computes between the blocks. Ranks meet in a barrier before each
/// collective and each agreement, so that waiting for a rank that still computes is a part of its own.
///
/// With a folder for checkpoints, each iteration has a second block of each, which begins when a checkpoint has been
/// saved and is being written. In the place of a step's parts, a row then has the `pause` until all ranks go on after
/// the save, the same in steps (`of_step`), and how much longer a step takes `beside` the writing; all three are
/// medians over the iterations.
///
/// With compressed gradients or an optimizer in slices, in all of them, a row also has the `compression` and the bytes
/// of optimizer `state` that a rank keeps, as the mean over the ranks.
///
/// ConfigError, naming --shards, for a number of shards that does not fit the ranks.
void bench_step(Runtime& runtime, const StepOptions& options, const AddRow& add);

}  // namespace lockstep::bench
