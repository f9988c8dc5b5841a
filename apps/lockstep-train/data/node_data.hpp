// Data that one rank of each node reads for all ranks of the node.
#pragma once

#include <functional>
#include <optional>
#include <string_view>

#include "models/input/data_block.hpp"

namespace lockstep {

/// COLL, in a run, blocking. On each node, the first of the ranks with one `key`, which says what is read and how,
/// calls `read`; all of them get the block, in memory that they share. Nothing, on all ranks, if no two ranks of a node
/// have one key, or if a node cannot share memory: each rank then has to read by itself. LOCAL, and nothing, without
/// other ranks.
///
/// What `read` throws fails the run on the rank that reads, which is not late for the others while it reads.
std::optional<BlockReader> read_once_a_node(std::string_view key, const std::function<BlockWriter()>& read);

}  // namespace lockstep
