// The reductions of tensors on one kind of device: how they become messages, and which path each message takes.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "core/comm/communicator.hpp"
#include "sync/reduce/by_messages.hpp"
#include "sync/reduce/one_rank.hpp"
#include "sync/reduce/paths.hpp"
#include "sync/reduce/reductions.hpp"
#include "sync/reduce/request.hpp"
#include "sync/reduce/shared_sums.hpp"
#include "sync/reduce/sums_under_way.hpp"
#include "sync/reduce/two_levels.hpp"

namespace lockstep::detail {

class ReductionPlane {
 public:
  /// COLL. As Reductions.
  ReductionPlane(Communicator& communicator, const ReductionOptions& options, std::span<const int> node_of_rank,
                 std::uint64_t number);

  /// COLL. Blocks as Reductions says.
  void run(const Request& request);

  /// COLL. A sum of gradients for all ranks, or its first half: one message, which may be compressed.
  Work start(Request request);

  /// COLL. As `run` of a sum for all ranks.
  Work start_sums(const Request& request);

  SharedAllocation allocate_shared(std::size_t bytes);

  // LOCAL. What Reductions tells.
  Reductions::Choice choice() const;
  Way way_of_sum(std::int64_t bytes, DType dtype) const;
  int subtrees_sent(const Shares& shares) const;

 private:
  /// How tensors up to a size are reduced.
  struct Class {
    std::int64_t up_to_bytes;
    Order order;
    Packing packing;
    bool asks_for_nodes;  ///< for their order, whatever the bits
  };

  /// The trees that continue one over shards (SumRule::additions).
  struct Trees {
    std::vector<std::uint8_t> over_ranks, over_nodes;
    bool is_by_nodes;  ///< whether sums within the nodes and then over them have the bits of `over_ranks`
  };

  const Class& rest() const { return classes_.back(); }
  const Class& class_of(std::int64_t bytes) const;
  template <class Body>
  void for_each_class(std::span<const TensorView> tensors, Body&& body) const;
  bool goes_by_nodes() const { return two_levels_ && rest().order == Order::nodes; }
  /// Whether long sums over shards go by nodes, also where other sums do not.
  bool sums_subtrees_by_nodes() const { return only_subtrees_by_nodes_ || (goes_by_nodes() && !rest().asks_for_nodes); }
  Path path_of(Order order, Request::Kind kind, std::int64_t bytes, DType wire) const {
    return detail::path_of({device_, layout_, kind, bytes, order, wire});
  }
  const Trees& trees_of(int shards);
  Order order_for(const Class& some, const Request& request);
  void place(Request& request, Path path);
  bool takes_whole(Path path, std::span<const TensorView> tensors, std::int64_t bytes) const;
  void run_messages(const Class& some, const Request& request);
  void run(Path path, Request request);
  Work start_under_way(const Request& request);
  void sum_in_places(const Request& request);

  Communicator& communicator_;
  DeviceKind device_;
  std::vector<int> node_of_rank_;
  Layout layout_;
  std::optional<DType> compression_;
  bool has_function_;            ///< to combine on one rank
  bool is_fixed_order_;          ///< what the options want
  bool only_subtrees_by_nodes_;  ///< sums over shards go by nodes, and no others, whose bits that would change
  std::vector<Class> classes_;   ///< from small to large; the last one has no limit
  std::map<int, Trees> trees_;   ///< by shards
  Scratch packed_;
  // The paths, as far as requests can come to them.
  ByMessages by_messages_;
  OneRank one_rank_;
  std::optional<SharedSums> shared_sums_;
  std::optional<SumsUnderWay> under_way_;
  std::optional<TwoLevels> two_levels_;
};

}  // namespace lockstep::detail
