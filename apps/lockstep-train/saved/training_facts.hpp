// What a training is, for its checkpoints: only the same training goes on from them.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include <lockstep/core/base/dtype.hpp>

#include "apps/lockstep-train/options/training_options.hpp"
#include "sync/checkpoint/program_state.hpp"

namespace lockstep {

/// What a model is, besides the shapes of its variables. The number of classes must be filled in.
TrainingFacts model_facts(const TrainingOptions& options);

/// Everything that the bits of a training depend on, besides the machine. The number of steps is among it only where
/// the learning rate depends on it, so that a training can be made longer. All defaults in `options` must be filled in.
TrainingFacts training_facts(const TrainingOptions& options, const FitOptions& fit, std::uint64_t data_digest);

/// What gradients are rounded to between nodes, and which shards share one: all that the bits of compressed sums depend
/// on, whatever the number of ranks. "bf16 between nodes of 4 shards" if all nodes have as many neighbouring ones,
/// otherwise such as "bf16 between nodes of shards 0-1+4-5, 2-3, 6-7". `node_of_rank` holds the same number for ranks
/// of one node, and the ranks share the shards evenly, in order.
std::string compression_text(DType compression, std::span<const int> node_of_rank, int shards);

}  // namespace lockstep
