// What the user's options for reductions mean.
#pragma once

#include <string>

#include <lockstep/sync/reduce/reduction_options.hpp>

namespace lockstep {

/// LOCAL. InvalidArgument for an unknown kind, for packing sizes below 1, for sizes of `smaller` below 1 or that do not
/// rise, for `accumulate` without to_one_rank or with shard_optimizer, and for a compression to another type or without
/// hierarchical reductions.
void require_valid(const ReductionOptions& options);

/// "hierarchical reductions in 4 packs, up to 64 bytes fixed-order reductions": everything that ranks can compare.
std::string describe(const ReductionOptions& options);

}  // namespace lockstep
