// Reductions within nodes, among their first ranks, and back.
#include <algorithm>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <lockstep/base/error.hpp>
#include <lockstep/reduce/cross_device_ops.hpp>

#include "reduce/arithmetic.hpp"
#include "reduce/dispatch.hpp"

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

template <class From, class To>
void convert_elements(const TensorView& from, const TensorView& to) {
  std::ranges::transform(from.elements<From>(), to.elements<To>().begin(), [](From x) { return static_cast<To>(x); });
}

void widen(const TensorView& from, const TensorView& to) {
  from.dtype() == DType::f16 ? convert_elements<Half, float>(from, to) : convert_elements<BFloat16, float>(from, to);
}

void round(const TensorView& from, const TensorView& to) {
  to.dtype() == DType::f16 ? convert_elements<float, Half>(from, to) : convert_elements<float, BFloat16>(from, to);
}

/// Holds 16-bit floats as f32 while they are summed, so that their sum over all nodes is rounded once. Other types stay
/// as they are.
class Summands {
 public:
  explicit Summands(std::span<const TensorView> tensors) : tensors_{tensors}, views_(tensors.begin(), tensors.end()) {
    for (TensorView& view : views_) {
      if (!is_16_bit_float(view.dtype())) continue;
      wide_.push_back(Tensor::uninitialised(DType::f32, view.shape()));
      widen(view, wide_.back().view());
      view = wide_.back().view();
    }
  }

  const std::vector<TensorView>& views() const { return views_; }

  void write_back() const {
    for (std::size_t i = 0; i < views_.size(); ++i)
      if (is_16_bit_float(tensors_[i].dtype())) round(views_[i], tensors_[i]);
  }

 private:
  std::span<const TensorView> tensors_;
  std::vector<TensorView> views_;
  std::vector<Tensor> wide_;
};

class HierarchicalOps final : public CrossDeviceOps {
 public:
  HierarchicalOps(Communicator& communicator, std::span<const int> node_of_rank, const Packing& packing)
      : places_{places_of(node_of_rank)},
        mine_{places_[static_cast<std::size_t>(communicator.rank())]},
        node_plane_{communicator.split(mine_.node)},
        leader_plane_{communicator.split(leads() ? std::optional{0} : std::nullopt)},
        flat_{make_fixed_order_ops(communicator, packing)},
        node_{make_fixed_order_ops(*node_plane_, packing)},
        leaders_{leads() ? make_fixed_order_ops(*leader_plane_, packing) : nullptr} {}

  std::string_view name() const override { return "hierarchical sum"; }
  const Packing& packing() const override { return flat_->packing(); }
  Work start(const TensorView& message) override {
    return Work::later([this, message] { all_reduce(ReduceOp::sum, {&message, 1}); });
  }

  void all_reduce(ReduceOp op, std::span<const TensorView> tensors) override {
    sum_over_nodes(op, tensors, [](CrossDeviceOps& leaders, std::span<const TensorView> sums) {
      leaders.all_reduce(ReduceOp::sum, sums);
      return true;
    });
    node_->broadcast(tensors, 0);
  }

  void reduce_to_one(ReduceOp op, std::span<const TensorView> tensors, int root) override {
    const Place to = place_of(root);
    sum_over_nodes(op, tensors, [&](CrossDeviceOps& leaders, std::span<const TensorView> sums) {
      leaders.reduce_to_one(ReduceOp::sum, sums, to.node);
      return mine_.node == to.node;
    });
    if (mine_.node == to.node && to.within != 0) node_->broadcast(tensors, 0);
  }

  void broadcast(std::span<const TensorView> tensors, int root) override {
    const Place from = place_of(root);
    if (mine_.node == from.node) node_->broadcast(tensors, from.within);
    if (leads()) leaders_->broadcast(tensors, from.node);
    if (mine_.node != from.node) node_->broadcast(tensors, 0);
  }

  // Rows are concatenated, not summed, so there is nothing to combine within a node.
  void all_reduce(ReduceOp op, std::span<IndexedSlices> slices) override { flat_->all_reduce(op, slices); }
  void reduce_to_one(ReduceOp op, std::span<IndexedSlices> slices, int root) override {
    flat_->reduce_to_one(op, slices, root);
  }
  void broadcast(std::span<IndexedSlices> slices, int root) override { flat_->broadcast(slices, root); }

 private:
  bool leads() const { return mine_.within == 0; }
  const Place& place_of(int rank) const { return places_[static_cast<std::size_t>(rank)]; }

  /// Sums within the node, on its leader. `among_leaders` then sums over the leaders and returns whether this one needs
  /// the result.
  template <class AmongLeaders>
  void sum_over_nodes(ReduceOp op, std::span<const TensorView> tensors, AmongLeaders&& among_leaders) {
    const Summands summands{tensors};
    node_->reduce_to_one(ReduceOp::sum, summands.views(), 0);
    if (!leads() || !among_leaders(*leaders_, summands.views())) return;
    if (op == ReduceOp::mean)
      for (const TensorView& sum : summands.views())
        detail::divide(sum, static_cast<int>(places_.size()), host_stream());
    summands.write_back();
  }

  std::vector<Place> places_;
  Place mine_;
  std::unique_ptr<Communicator> node_plane_, leader_plane_;
  std::unique_ptr<CrossDeviceOps> flat_, node_, leaders_;  ///< `leaders_` on leaders only
};

}  // namespace

std::unique_ptr<CrossDeviceOps> make_hierarchical_ops(Communicator& communicator, std::span<const int> node_of_rank,
                                                      Packing packing) {
  if (node_of_rank.size() != static_cast<std::size_t>(communicator.size()))
    throw InvalidArgument{
        fmt::format("the nodes of {} ranks, for a group of {}", node_of_rank.size(), communicator.size())};
  return std::make_unique<HierarchicalOps>(communicator, node_of_rank, packing);
}

}  // namespace lockstep
