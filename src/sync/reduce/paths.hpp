// Which path a request takes: the one place that decides it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include <lockstep/sync/reduce/reduction_options.hpp>

#include "sync/reduce/dispatch.hpp"
#include "sync/reduce/request.hpp"

namespace lockstep::detail {

/// The ways to carry out a request. The file of each tells its algorithm, and what that costs.
enum class Path : std::uint8_t {
  in_shared_memory,  ///< ranks of one node read and write each other's tensors (shared_sums.hpp)
  by_messages,       ///< collectives that move bytes: short tensors whole, long ones in slices (by_messages.hpp)
  under_way,         ///< in pieces, which are sent on while the ranks compute (sums_under_way.hpp)
  two_levels,        ///< within each node, then between nodes (two_levels.hpp); this path alone calls others
  backend_order,     ///< the backend's own sum (backend_order.hpp)
  one_rank,          ///< to one rank, which combines, and back (one_rank.hpp)
};

/// "in shared memory", "by messages", …
std::string_view name_of(Path path);

/// What is added to what.
enum class Order : std::uint8_t {
  tree,      ///< the fixed tree over the ranks (docs/decisions/0002)
  nodes,     ///< the tree of each node's ranks, and the tree over the nodes
  backend,   ///< as the backend likes
  one_rank,  ///< the fixed tree, or a function of the program's, on one rank
};

/// "fixed-order sum", "hierarchical sum", "sum in the backend's order", "reduction to one rank".
std::string_view name_of(Order order);

/// How a group's ranks are spread over nodes, the same on every rank.
struct Layout {
  int ranks = 1;
  int nodes = 1;
  int ranks_of_node = 1;       ///< of the smallest node
  bool shares_memory = false;  ///< all ranks of the group share host memory (NodeMemory)
  bool sends_early = false;    ///< ranks can send while they compute (Messenger)
};

/// `node_of_rank` holds the same number for ranks of one node.
Layout layout_of(Communicator& communicator, std::span<const int> node_of_rank);

/// All that a path depends on.
struct Facts {
  DeviceKind device = DeviceKind::cpu;
  Layout layout = {};
  Request::Kind kind = Request::Kind::all_reduce;
  std::int64_t bytes = 0;  ///< of the message
  Order order = Order::tree;
  DType wire = DType::f32;  ///< the type that is sent
};

/// Messages up to this size, for all ranks together, travel whole: one exchange instead of two.
constexpr std::int64_t whole_bytes = 64 << 10;

/// Pure, so every rank takes the same path. The first line that fits decides:
///
///   request                | order    | where                                 | path
///   a sum                  | one_rank |                                       | one_rank
///   a sum                  | backend  | on a GPU, or not of 16-bit floats     | backend_order
///   all but all_gather     | nodes    | on the host, several nodes            | two_levels
///   broadcast, all_gather  |          |                                       | by_messages
///   all                    |          | on the host, in memory that all share | in_shared_memory
///   long, not for one rank |          | on the host, several nodes            | under_way
///   all                    |          |                                       | by_messages
///
/// Exact sums (ReduceOp::exact_sum) go as those of the tree: whoever has all parts of an element adds them up exactly.
/// `under_way` also needs ranks that can send while they compute. A request is long if it is a half of a sum, or one of
/// more than whole_bytes for all ranks together. On GPUs, where NCCL knows the nodes, `nodes` stands for `backend`.
inline Path path_of(const Facts& facts) {
  using enum Request::Kind;
  const bool sums = facts.kind == all_reduce || facts.kind == to_owners || facts.kind == reduce;
  const bool on_host = facts.device == DeviceKind::cpu;
  const bool several_nodes = on_host && facts.layout.nodes > 1;
  const Order order = !on_host && facts.order == Order::nodes ? Order::backend : facts.order;

  if (sums && order == Order::one_rank) return Path::one_rank;
  // No host backend adds up 16-bit floats.
  if (sums && order == Order::backend && !(on_host && is_16_bit_float(facts.wire))) return Path::backend_order;
  if (facts.kind != all_gather && order == Order::nodes && several_nodes) return Path::two_levels;
  if (facts.kind == broadcast || facts.kind == all_gather) return Path::by_messages;
  if (on_host && !several_nodes && facts.layout.shares_memory) return Path::in_shared_memory;
  const bool is_long = facts.kind != all_reduce || facts.bytes * facts.layout.ranks > whole_bytes;
  if (is_long && facts.kind != reduce && several_nodes && facts.layout.sends_early) return Path::under_way;
  return Path::by_messages;
}

/// Between nodes, the first rank of each sends messages up to this size, which cost their latency.
constexpr std::int64_t short_bytes = 16 << 10;

/// The order that `kind` stands for, given what all ranks know. Pure. On GPUs, `automatic` is the backend's order. On
/// the host, `automatic` and `fixed_order` are that of the nodes if gradients are compressed between them, or if there
/// are several nodes with several ranks each and no bit changes, since a sum then crosses the network once per node,
/// not once per rank. Else they are the tree.
Order order_of(ReductionOptions::Kind kind, DeviceKind device, std::span<const int> node_of_rank,
               bool compresses = false);

/// Whether there are several nodes with several ranks each, and the ranks of each are neighbours: then nodes can add up
/// the subtrees of the shards that their ranks hold.
bool nodes_hold_subtrees(std::span<const int> node_of_rank);

/// Whether a sum in the order of the nodes has the bits of the tree, whatever the values. It does if every node holds
/// the same power-of-two number of neighbouring ranks.
bool hierarchy_keeps_bits(std::span<const int> node_of_rank);

/// What the tree over the ranks (SumRule::additions) leaves to be added up over the nodes, once each node has added up
/// its own ranks in the tree of fixed_order_sum. Nothing if a node's ranks are no neighbours, or no such subtree.
std::optional<std::vector<std::uint8_t>> additions_over_nodes(std::span<const std::uint8_t> additions,
                                                              std::span<const int> node_of_rank);

/// What the rank that sends most sends to others in a sum for all ranks.
struct Cost {
  std::string_view formula;  ///< for S bytes, and n ranks on m nodes that have c ranks or more
  std::int64_t messages = 0, bytes = 0;
};
Cost cost_of(Path path, const Layout& layout, std::int64_t bytes);

/// Which way a sum for all ranks goes.
struct Way {
  Path path;
  Order order;
  Layout layout;
  Cost cost;
};

}  // namespace lockstep::detail
