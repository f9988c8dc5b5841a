// What a training step is made of, and what it costs that its bits do not depend on the number of ranks.
#pragma once

#include <cstdint>
#include <optional>

#include <lockstep/input/shards.hpp>
#include <lockstep/runtime/runtime.hpp>

#include "apps/lockstep-bench/report.hpp"
#include "apps/lockstep-bench/step_task.hpp"

namespace lockstep::bench {

struct StepOptions {
  static constexpr const char* name = "step";

  StepModel model = StepModel::mlp;
  /// Nothing: 256 for mlp, 128 for convnet, 16 for gpt.
  std::optional<std::int64_t> global_batch;
  ShardRequest shards;
  std::int64_t steps = 5;  ///< of a block
  std::int64_t warm_up = 1;
  std::int64_t iterations = 20;
};

/// COLL, on the CPU. Trains one model with the number of shards asked for and another with one shard a rank, by turns:
/// an iteration is a block of steps of each. `add` gets a row for each of the two, on every rank the same; only one
/// where the numbers are the same. Each has the time of a step and its parts, which add up to it: means over the ranks,
/// and over the middle half by length of all steps. `ratio` is that of the time of a step to that in the last row: the
/// median over the iterations of the ratio of the blocks' medians.
///
/// ConfigError, naming --shards, for a number of shards that does not fit the ranks.
void bench_step(Runtime& runtime, const StepOptions& options, const AddRow& add);

}  // namespace lockstep::bench
