#include "sync/reduce/paths.hpp"

#include <algorithm>
#include <bit>
#include <map>
#include <vector>

#include "sync/reduce/messages.hpp"
#include "sync/reduce/sums_under_way.hpp"

namespace lockstep::detail {
namespace {

/// The lengths of the runs of neighbouring ranks on one node: 2, 2 for nodes 0, 0, 1, 1.
std::vector<std::size_t> runs_of(std::span<const int> node_of_rank) {
  std::vector<std::size_t> runs;
  for (std::size_t rank = 0; rank < node_of_rank.size(); ++rank) {
    if (rank == 0 || node_of_rank[rank] != node_of_rank[rank - 1]) runs.push_back(0);
    ++runs.back();
  }
  return runs;
}

std::map<int, int> ranks_by_node(std::span<const int> node_of_rank) {
  std::map<int, int> ranks;
  for (const int node : node_of_rank) ++ranks[node];
  return ranks;
}

std::int64_t rounded_up(std::int64_t whole, std::int64_t part) {
  return (whole + part - 1) / part;
}

}  // namespace

std::string_view name_of(Path path) {
  switch (path) {
    case Path::in_shared_memory: return "in shared memory";
    case Path::by_messages: return "by messages";
    case Path::under_way: return "under way";
    case Path::two_levels: return "two levels";
    case Path::backend_order: return "backend order";
    case Path::one_rank: return "one rank";
  }
  return "?";
}

std::string_view name_of(Order order) {
  switch (order) {
    case Order::tree: return "fixed-order sum";
    case Order::nodes: return "hierarchical sum";
    case Order::backend: return "sum in the backend's order";
    case Order::one_rank: return "reduction to one rank";
  }
  return "?";
}

Layout layout_of(Communicator& communicator, std::span<const int> node_of_rank) {
  const auto nodes = ranks_by_node(node_of_rank);
  const auto smallest = std::ranges::min_element(nodes, {}, [](const auto& node) { return node.second; });
  return {communicator.size(), static_cast<int>(nodes.size()), smallest->second, communicator.node_memory() != nullptr,
          communicator.messenger() != nullptr};
}

Order order_of(ReductionOptions::Kind kind, DeviceKind device, std::span<const int> node_of_rank, bool compresses) {
  switch (kind) {
    case ReductionOptions::Kind::backend_order: return Order::backend;
    case ReductionOptions::Kind::to_one_rank: return Order::one_rank;
    case ReductionOptions::Kind::hierarchical: return device == DeviceKind::cpu ? Order::nodes : Order::backend;
    case ReductionOptions::Kind::fixed_order:
      if (device == DeviceKind::cuda) return Order::tree;
      break;
    case ReductionOptions::Kind::automatic:
      if (device == DeviceKind::cuda) return Order::backend;
      break;
  }
  if (compresses) return Order::nodes;
  const auto runs = runs_of(node_of_rank);
  return hierarchy_keeps_bits(node_of_rank) && runs.size() > 1 && runs.front() > 1 ? Order::nodes : Order::tree;
}

bool nodes_hold_subtrees(std::span<const int> node_of_rank) {
  const auto runs = runs_of(node_of_rank);
  return runs.size() > 1 && std::ranges::min(runs) > 1 && ranks_by_node(node_of_rank).size() == runs.size();
}

bool hierarchy_keeps_bits(std::span<const int> node_of_rank) {
  const auto runs = runs_of(node_of_rank);
  return ranks_by_node(node_of_rank).size() == runs.size() &&
         std::ranges::all_of(runs, [&](std::size_t run) { return run == runs.front() && std::has_single_bit(run); });
}

std::optional<std::vector<std::uint8_t>> additions_over_nodes(std::span<const std::uint8_t> additions,
                                                              std::span<const int> node_of_rank) {
  const auto runs = runs_of(node_of_rank);
  if (ranks_by_node(node_of_rank).size() != runs.size() || additions.size() != node_of_rank.size()) return {};
  std::vector<std::uint8_t> over_nodes;
  for (const std::size_t run : runs) {
    // As a binary counter carries, and from the right at the end.
    for (std::size_t rank = 0; rank + 1 < run; ++rank)
      if (additions[rank] != std::countr_one(rank)) return {};
    const auto own = std::popcount(run - 1);
    if (additions[run - 1] < own) return {};
    over_nodes.push_back(static_cast<std::uint8_t>(additions[run - 1] - own));
    additions = additions.subspan(run);
  }
  return over_nodes;
}

Cost cost_of(Path path, const Layout& layout, std::int64_t bytes) {
  constexpr std::int64_t piece = SumsUnderWay::piece_bytes;
  const std::int64_t n = layout.ranks, m = layout.nodes, c = layout.ranks_of_node;
  switch (path) {
    case Path::in_shared_memory: return {"no messages; between two fences, each rank reads S bytes and writes S bytes"};
    case Path::by_messages:
      if (bytes * n <= whole_bytes) return {"n - 1 messages, (n - 1) S bytes", n - 1, (n - 1) * bytes};
      return {"2 (n - 1) messages for each 4 MiB, 2 S (n - 1) / n bytes", 2 * (n - 1) * rounded_up(bytes, bucket_bytes),
              2 * bytes * (n - 1) / n};
    case Path::under_way:
      return {"2 (n - 1) messages for each n pieces of 16 KiB, 2 S (n - 1) / n bytes",
              2 * (n - 1) * rounded_up(bytes, piece * n), 2 * bytes * (n - 1) / n};
    case Path::two_levels:
      if (bytes <= short_bytes) return {"m - 1 messages between nodes, (m - 1) S bytes", m - 1, (m - 1) * bytes};
      return {"2 (m - 1) messages between nodes for each c m pieces of 16 KiB, 2 S (m - 1) / (c m) bytes",
              2 * (m - 1) * rounded_up(bytes, piece * c * m), 2 * bytes * (m - 1) / (c * m)};
    case Path::backend_order:
      return {"the backend's; in a ring, 2 (n - 1) messages, 2 S (n - 1) / n bytes", 2 * (n - 1),
              2 * bytes * (n - 1) / n};
    case Path::one_rank:
      return {"n - 1 messages, (n - 1) S bytes back from the one rank, to which as many have come", n - 1,
              (n - 1) * bytes};
  }
  return {};
}

}  // namespace lockstep::detail
