// Reductions within nodes and between them: each rank of a node carries a slice.
#include <algorithm>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <lockstep/base/error.hpp>

#include "comm/communicator.hpp"
#include "reduce/arithmetic.hpp"
#include "reduce/cross_device_ops.hpp"
#include "reduce/dispatch.hpp"
#include "reduce/flat_ops.hpp"
#include "reduce/implementations.hpp"
#include "reduce/node_slices.hpp"
#include "reduce/node_sums.hpp"
#include "reduce/slice_map.hpp"
#include "tensor/convert.hpp"

namespace lockstep {
namespace {

/// A rank's position. Nodes are numbered in the order of their first ranks, and the ranks of a node in rank order.
struct Place {
  int node;
  int within;
};

std::vector<Place> places_of(std::span<const int> node_of_rank) {
  std::map<int, Place> next;  // by the caller's number of a node: the position of its next rank
  std::vector<Place> places;
  for (const int node : node_of_rank) {
    Place& place = next.try_emplace(node, Place{static_cast<int>(next.size()), 0}).first->second;
    places.push_back(place);
    ++place.within;
  }
  return places;
}

/// Holds 16-bit floats as f32 while they are summed, so that their sum over all nodes is rounded once. Other types stay
/// as they are.
class Summands {
 public:
  explicit Summands(std::span<const TensorView> tensors) : tensors_{tensors}, views_(tensors.begin(), tensors.end()) {
    for (TensorView& view : views_) {
      if (!is_16_bit_float(view.dtype())) continue;
      wide_.push_back(Tensor::uninitialised(DType::f32, view.shape()));
      detail::convert(view, wide_.back().view());
      view = wide_.back().view();
    }
  }

  const std::vector<TensorView>& views() const { return views_; }

  void write_back() const {
    for (std::size_t i = 0; i < views_.size(); ++i)
      if (is_16_bit_float(tensors_[i].dtype())) detail::convert(views_[i], tensors_[i]);
  }

 private:
  std::span<const TensorView> tensors_;
  std::vector<TensorView> views_;
  std::vector<Tensor> wide_;
};

int nodes_of(std::span<const Place> places) {
  int nodes = 0;
  for (const Place& place : places) nodes = std::max(nodes, place.node + 1);
  return nodes;
}

/// How many ranks of each node can carry a slice. If the n-th ranks of the nodes are in another order than the nodes,
/// they would add up in another one: then only the first ranks do.
int carriers_of(std::span<const Place> places) {
  std::vector<int> ranks(static_cast<std::size_t>(nodes_of(places)));
  std::map<int, int> last;  // by place within a node: the last node that has a rank there
  for (const Place& place : places) {
    ++ranks[static_cast<std::size_t>(place.node)];
    const auto [found, is_first] = last.try_emplace(place.within, place.node);
    if (!is_first && found->second > place.node) return 1;
    found->second = place.node;
  }
  return *std::ranges::min_element(ranks);
}

class HierarchicalOps final : public detail::FlatOps {
 public:
  HierarchicalOps(Communicator& communicator, std::span<const int> node_of_rank, const Packing& packing,
                  std::optional<DType> compression)
      : FlatOps{communicator, packing},
        places_{places_of(node_of_rank)},
        compression_{has_one_node() ? std::nullopt : compression},
        mine_{places_[static_cast<std::size_t>(communicator.rank())]},
        carriers_{carriers_of(places_)},
        nodes_{nodes_of(places_)},
        node_plane_{communicator.subset(ranks_of([&](const Place& each) { return each.node == mine_.node; }), 16)},
        between_plane_{carries() ? communicator.subset(ranks_of_place(), 18) : nullptr},
        node_{make_fixed_order_ops(*node_plane_, packing)},
        between_{carries()
                     ? make_fixed_order_ops(*between_plane_, packing, nodes_ > 1 ? Travel::early : Travel::at_wait)
                     : nullptr},
        slices_{*node_plane_, carriers_} {
    if (nodes_ == 1 || !communicator.messenger()) return;
    if (carries()) early_plane_ = communicator.subset(ranks_of_place(), 20);
    under_way_.emplace(*node_plane_, early_plane_.get());
  }

  using FlatOps::all_reduce;
  using FlatOps::broadcast;
  using FlatOps::reduce_to_one;

  std::string_view name() const override { return "hierarchical sum"; }
  Work start(const TensorView& message) override {
    const bool compresses = compression_ && message.dtype() == DType::f32;
    if (!compresses && is_small({&message, 1}))
      return Work::later([this, message] { all_reduce(ReduceOp::sum, {&message, 1}); });
    if (under_way_ && !is_16_bit_float(message.dtype())) return send(slices_.pieces_of(message), compresses);
    if (compresses) return Work::later([this, message] { sum_compressed(message); });
    return FlatOps::start(message);
  }

  std::int64_t enough_bytes() const override {
    return under_way_ ? detail::early_bytes : detail::FlatOps::enough_bytes();
  }

  std::optional<DType> gradient_compression() const override { return compression_; }

  SharedAllocation allocate_shared(std::size_t bytes) override { return node_->allocate_shared(bytes); }

  /// The slices of a place are neighbours: those of its node's sum, one for each node.
  std::vector<int> slice_owners() const override {
    std::vector<int> owners(static_cast<std::size_t>(carriers_ * nodes_));
    for (std::size_t rank = 0; rank < places_.size(); ++rank)
      if (const Place& place = places_[rank]; place.within < carriers_)
        owners[static_cast<std::size_t>(place.within * nodes_ + place.node)] = static_cast<int>(rank);
    return owners;
  }
  /// 16-bit floats are summed as a whole, so that they are rounded once.
  Work start_scatter(const Sliced& message) override {
    if (is_16_bit_float(message.memory.dtype())) return start(message.memory);
    const bool compresses = compression_ && message.memory.dtype() == DType::f32;
    if (under_way_) return send(slices_.pieces_of(message, nodes_), compresses);
    return Work::later([this, message, compresses] {
      slices_.scatter(message, nodes_, [&](const Sliced& slice) {
        compresses ? scatter_compressed(slice) : between_->start_scatter(slice).wait();
      });
    });
  }
  void gather_slices(std::span<const Sliced> messages) override {
    slices_.gather(messages, nodes_, [&](const Sliced& slice) { between_->gather_slices({&slice, 1}); });
  }

  void all_reduce(ReduceOp op, std::span<const TensorView> tensors) override {
    if (!is_small(tensors)) return FlatOps::all_reduce(op, tensors);
    sum_over_leaders(op, tensors, [](CrossDeviceOps& leaders, std::span<const TensorView> sums) {
      leaders.all_reduce(ReduceOp::sum, sums);
      return true;
    });
    node_->broadcast(tensors, 0);
  }

  void reduce_to_one(ReduceOp op, std::span<const TensorView> tensors, int root) override {
    const Place to = place_of(root);
    sum_over_leaders(op, tensors, [&](CrossDeviceOps& leaders, std::span<const TensorView> sums) {
      leaders.reduce_to_one(ReduceOp::sum, sums, to.node);
      return mine_.node == to.node;
    });
    if (mine_.node == to.node && to.within != 0) node_->broadcast(tensors, 0);
  }

  void broadcast(std::span<const TensorView> tensors, int root) override {
    const Place from = place_of(root);
    if (mine_.node == from.node) node_->broadcast(tensors, from.within);
    if (leads()) between_->broadcast(tensors, from.node);
    if (mine_.node != from.node) node_->broadcast(tensors, 0);
  }

 protected:
  /// Every carrier sums its slice within the node, then over the nodes.
  void reduce(ReduceOp op, const TensorView& flat) override {
    const Summands summands{std::span{&flat, 1}};
    slices_.sum(summands.views().front(), [&](const TensorView& slice) {
      between_->all_reduce(ReduceOp::sum, {&slice, 1});
      detail::divide(slice, divisor(op), stream());
    });
    summands.write_back();
  }
  void reduce_to(ReduceOp op, const TensorView& flat, int root) override { reduce_to_one(op, {&flat, 1}, root); }

 private:
  bool has_one_node() const {
    return std::ranges::all_of(places_, [](const Place& place) { return place.node == 0; });
  }
  // Keys are even, as those of groups are odd, and not those that planes of messages have.

  template <class Belongs>
  std::vector<int> ranks_of(Belongs&& belongs) const {
    std::vector<int> ranks;
    for (std::size_t rank = 0; rank < places_.size(); ++rank)
      if (belongs(places_[rank])) ranks.push_back(static_cast<int>(rank));
    return ranks;
  }
  std::vector<int> ranks_of_place() const {
    return ranks_of([&](const Place& each) { return each.within == mine_.within; });
  }
  bool carries() const { return mine_.within < carriers_; }
  bool leads() const { return mine_.within == 0; }
  const Place& place_of(int rank) const { return places_[static_cast<std::size_t>(rank)]; }

  /// Travels while the ranks compute.
  Work send(std::vector<detail::NodePiece> pieces, bool compresses) {
    if (compresses)
      for (detail::NodePiece& piece : pieces) piece.sent_as = compression_;
    return detail::work_of(*under_way_, {under_way_->start(std::move(pieces))});
  }

  void sum_compressed(const TensorView& flat) {
    slices_.sum(flat, [this](const TensorView& slice) {
      const TensorView sent = compressed_.take(communicator(), *compression_, slice.count());
      detail::convert(slice, sent);
      between_->all_reduce(ReduceOp::sum, {&sent, 1});
      detail::convert(sent, slice);
    });
  }

  void scatter_compressed(const Sliced& slice) {
    const TensorView sent = compressed_.take(communicator(), *compression_, slice.memory.count());
    detail::convert(slice.memory, sent);
    between_->start_scatter({sent, slice.slices}).wait();
    for (const detail::SliceMap::Slice& own : slice.slices->of(mine_.node))
      detail::convert(sent.slice(own.first, own.count), slice.memory.slice(own.first, own.count));
  }

  /// What one rank of a node carries faster than several: messages that cost their latency.
  static bool is_small(std::span<const TensorView> tensors) {
    constexpr std::size_t small_bytes = 16 << 10;
    std::size_t bytes = 0;
    for (const TensorView& tensor : tensors) bytes += tensor.bytes();
    return bytes <= small_bytes;
  }

  /// Sums within the node, on its leader. `among_leaders` then sums over the leaders and returns whether this one needs
  /// the result.
  template <class AmongLeaders>
  void sum_over_leaders(ReduceOp op, std::span<const TensorView> tensors, AmongLeaders&& among_leaders) {
    const Summands summands{tensors};
    node_->reduce_to_one(ReduceOp::sum, summands.views(), 0);
    if (!leads() || !among_leaders(*between_, summands.views())) return;
    for (const TensorView& sum : summands.views()) detail::divide(sum, divisor(op), stream());
    summands.write_back();
  }

  std::vector<Place> places_;
  std::optional<DType> compression_;  ///< of gradients; empty on one node
  Place mine_;
  int carriers_;
  int nodes_;
  std::unique_ptr<Communicator> node_plane_;
  std::unique_ptr<Communicator>
      between_plane_;  ///< of the ranks at this rank's place on all nodes; null unless it carries
  /// The same ranks once more, for what travels early. Each rank comes to it at another moment, so it has no fixed
  /// place among the messages of `between_`.
  std::unique_ptr<Communicator> early_plane_;
  std::unique_ptr<CrossDeviceOps> node_, between_;
  detail::NodeSlices slices_;
  detail::Scratch compressed_;
  std::optional<detail::NodeSums> under_way_;  ///< on several nodes, if ranks can send while they compute
};

}  // namespace

std::unique_ptr<CrossDeviceOps> make_hierarchical_ops(Communicator& communicator, std::span<const int> node_of_rank,
                                                      Packing packing, std::optional<DType> compression) {
  if (node_of_rank.size() != static_cast<std::size_t>(communicator.size()))
    throw InvalidArgument{
        fmt::format("the nodes of {} ranks, for a group of {}", node_of_rank.size(), communicator.size())};
  return std::make_unique<HierarchicalOps>(communicator, node_of_rank, packing, compression);
}

}  // namespace lockstep
