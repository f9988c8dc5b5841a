// What the user's options for reductions mean.
#pragma once

#include <span>
#include <string>

#include <lockstep/reduce/reduction_options.hpp>

namespace lockstep {

/// LOCAL. InvalidArgument for an unknown kind, for packing sizes below 1, for sizes of `smaller` below 1 or that do not
/// rise, for `accumulate` without to_one_rank or with shard_optimizer, and for a compression to another type or without
/// hierarchical reductions.
void require_valid(const ReductionOptions& options);

/// "hierarchical reductions in 4 packs, up to 64 bytes fixed-order reductions": everything that ranks can compare.
std::string describe(const ReductionOptions& options);

/// What `automatic` stands for, given what all ranks know: where the tensors are, and which node each rank is on. Never
/// `automatic`. Pure, so every rank gets the same answer.
///
/// On GPUs it is backend_order. On the host it is hierarchical if there are several nodes with several ranks each and
/// no bit changes (`hierarchy_keeps_bits`), since a sum then crosses the network once per node, not once per rank.
/// Otherwise it is fixed_order.
ReductionOptions::Kind choose_reduction(DeviceKind tensors, std::span<const int> node_of_rank);

}  // namespace lockstep
