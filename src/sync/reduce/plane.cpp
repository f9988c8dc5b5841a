#include "sync/reduce/plane.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>

#include "core/order/shares.hpp"
#include "sync/reduce/backend_order.hpp"
#include "sync/reduce/dispatch.hpp"
#include "sync/reduce/messages.hpp"

namespace lockstep::detail {

ReductionPlane::ReductionPlane(Communicator& communicator, const ReductionOptions& options,
                               std::span<const int> node_of_rank, std::uint64_t number)
    : communicator_{communicator},
      device_{communicator.stream().kind()},
      node_of_rank_{node_of_rank.begin(), node_of_rank.end()},
      compression_{options.gradient_compression},
      has_function_{options.accumulate != nullptr},
      is_fixed_order_{options.kind == ReductionOptions::Kind::fixed_order},
      by_messages_{communicator},
      one_rank_{communicator, options.accumulate} {
  if (compression_ && device_ != DeviceKind::cpu)
    throw ConfigError{"compression of gradients on GPUs, which NCCL sends as they are: expected ranks on the host"};
  layout_ = layout_of(communicator, node_of_rank);
  const auto add = [&](std::int64_t up_to_bytes, ReductionOptions::Kind kind, const Packing& packing) {
    classes_.push_back({up_to_bytes, order_of(kind, device_, node_of_rank, compression_.has_value()), packing,
                        kind == ReductionOptions::Kind::hierarchical || compression_});
  };
  for (const ReductionOptions::ForSmall& some : options.smaller) add(some.up_to_bytes, some.kind, some.packing);
  add(std::numeric_limits<std::int64_t>::max(), options.kind, options.packing);

  // A sum in slices needs one order for all, which says whose they are.
  only_subtrees_by_nodes_ = device_ == DeviceKind::cpu && nodes_hold_subtrees(node_of_rank) &&
                            communicator.messenger() && !options.shard_optimizer &&
                            std::ranges::all_of(classes_, [](const Class& each) { return each.order == Order::tree; });
  const bool by_nodes = only_subtrees_by_nodes_ || std::ranges::count(classes_, Order::nodes, &Class::order) > 0;
  if (by_nodes && node_of_rank.size() != static_cast<std::size_t>(communicator.size()))
    throw InvalidArgument{
        fmt::format("the nodes of {} ranks, for a group of {}", node_of_rank.size(), communicator.size())};
  if (NodeMemory* const memory = communicator.node_memory()) shared_sums_.emplace(*memory);
  if (layout_.nodes == 1) return;
  if (Messenger* const messenger = communicator.messenger()) under_way_.emplace(communicator, *messenger);
  if (by_nodes) two_levels_.emplace(communicator, node_of_rank, number);
  SumsUnderWay* const sums = goes_by_nodes() ? two_levels_->between() : under_way_ ? &*under_way_ : nullptr;
  if (sums) sums->measure_latency();
}

auto ReductionPlane::class_of(std::int64_t bytes) const -> const Class& {
  return *std::ranges::find_if(classes_, [bytes](const Class& each) { return bytes <= each.up_to_bytes; });
}

auto ReductionPlane::trees_of(int shards) -> const Trees& {
  if (const auto found = trees_.find(shards); found != trees_.end()) return found->second;
  const Shares shares{shards, communicator_.size()};
  Trees trees{shares.additions(), {}, true};
  if (layout_.nodes > 1 && !trees.over_ranks.empty()) {
    auto over_nodes = additions_over_nodes(trees.over_ranks, node_of_rank_);
    trees.is_by_nodes = over_nodes.has_value();
    if (over_nodes) trees.over_nodes = std::move(*over_nodes);
  }
  return trees_.emplace(shards, std::move(trees)).first->second;
}

/// An exact sum takes the ways of the tree: all parts of an element come to one rank. So does a sum over shards whose
/// bits the order of the nodes would change, unless the options ask for that order.
Order ReductionPlane::order_for(const Class& some, const Request& request) {
  if (request.op == ReduceOp::exact_sum) return Order::tree;
  if (request.subtrees && only_subtrees_by_nodes_) return Order::nodes;
  const bool has_one_subtree = request.shards > 0 && !request.subtrees;
  if (some.order == Order::nodes && !some.asks_for_nodes && has_one_subtree && !trees_of(request.shards).is_by_nodes)
    return Order::tree;
  return some.order;
}

/// Says what is added to what, for a sum over shards.
void ReductionPlane::place(Request& request, Path path) {
  if (request.subtrees) request.additions = request.subtrees->additions();
  if (!request.is_sum() || request.shards == 0 || request.subtrees) return;
  const Trees& trees = trees_of(request.shards);
  request.additions = path == Path::two_levels ? trees.over_nodes : trees.over_ranks;
}

/// The smallest first, so that all ranks call in one order.
template <class Body>
void ReductionPlane::for_each_class(std::span<const TensorView> tensors, Body&& body) const {
  if (classes_.size() == 1) return body(rest(), tensors);
  for (const Class& each : classes_) {
    std::vector<TensorView> some;
    for (const TensorView& tensor : tensors)
      if (&class_of(static_cast<std::int64_t>(tensor.bytes())) == &each) some.push_back(tensor);
    if (!some.empty()) body(each, std::span<const TensorView>{some});
  }
}

Reductions::Choice ReductionPlane::choice() const {
  const Order order = is_fixed_order_ ? Order::tree : rest().order;  // which the sums have by nodes too
  const Path path = path_of(rest().order, Request::Kind::all_reduce, bucket_bytes, DType::f32);
  const bool is_early = path == Path::under_way || path == Path::two_levels;
  return {
      .name = fmt::format("{}{}", name_of(order), has_function_ && order == Order::one_rank ? " by a function" : ""),
      .packing = rest().packing,
      .enough_bytes = is_early ? early_bytes : bucket_bytes,
      .gradient_compression = goes_by_nodes() ? compression_ : std::nullopt,
      .slice_owners = goes_by_nodes() ? two_levels_->slice_owners() : owners_in_order(communicator_.size()),
      .takes_subtrees = device_ == DeviceKind::cpu && std::ranges::all_of(classes_, [&](const Class& each) {
                          return each.order == Order::tree || (each.order == Order::nodes && !each.asks_for_nodes);
                        })};
}

Way ReductionPlane::way_of_sum(std::int64_t bytes, DType dtype) const {
  const Class& some = class_of(bytes);
  const Path path = path_of(some.order, Request::Kind::all_reduce, bytes, dtype);
  return {path, some.order, layout_, cost_of(path, layout_, bytes)};
}

int ReductionPlane::subtrees_sent(const Shares& shares) const {
  return (sums_subtrees_by_nodes() ? two_levels_->shares_of_nodes(shares) : shares).most_of_rank();
}

SharedAllocation ReductionPlane::allocate_shared(std::size_t bytes) {
  if (goes_by_nodes() || only_subtrees_by_nodes_) return two_levels_->allocate_shared(bytes);
  const bool sums_there = rest().order == Order::tree || rest().order == Order::nodes;
  NodeMemory* const memory = sums_there ? communicator_.node_memory() : nullptr;
  return memory ? memory->allocate(bytes) : SharedAllocation{};
}

void ReductionPlane::run(const Request& request) {
  // Ranks may have different numbers of rows, so their bytes choose nothing.
  if (!request.rows.empty() || !request.to_gather.empty())
    return run(path_of(rest().order, Request::Kind::all_gather, 0, DType::u8), request);
  if (!request.slices.empty()) return run(path_of(rest().order, request.kind, 0, DType::f32), request);
  if (!request.is_sum() || classes_.size() == 1) return run_messages(rest(), request);
  for_each_class(request.tensors, [&](const Class& some, std::span<const TensorView> tensors) {
    Request part = request;
    part.tensors = tensors;
    run_messages(some, part);
  });
}

/// Whether they travel in one exchange, whatever their types.
bool ReductionPlane::takes_whole(Path path, std::span<const TensorView> tensors, std::int64_t bytes) const {
  if (path == Path::in_shared_memory) return shared_sums_->takes_whole(bytes);
  if (path == Path::by_messages) return by_messages_.takes_whole(bytes);
  return path == Path::two_levels && two_levels_->takes_whole(tensors);
}

void ReductionPlane::run_messages(const Class& some, const Request& request) {
  if (request.tensors.empty()) return;
  const Order order = order_for(some, request);
  const auto path_for = [&](std::int64_t bytes, DType dtype) { return path_of(order, request.kind, bytes, dtype); };
  // With the default packing, short tensors travel as one message for all types, if they have one order.
  if (request.is_sum() && order != Order::backend && is_default(some.packing)) {
    const std::int64_t bytes = padded(request.tensors);
    const Path path = path_for(bytes, request.tensors.front().dtype());
    if (takes_whole(path, request.tensors, bytes)) return run(path, request);
  }
  for (std::vector<TensorView>& parts : messages_of(some.packing, request.tensors)) {
    const Message message{std::move(parts), communicator_, packed_};
    Request one = request;
    one.tensors = {&message.flat(), 1};
    run(path_for(padded(one.tensors), message.flat().dtype()), one);
    message.unpack();
  }
}

void ReductionPlane::run(Path path, Request request) {
  place(request, path);
  switch (path) {
    case Path::in_shared_memory: return shared_sums_->run(request);
    case Path::by_messages: return by_messages_.run(request);
    case Path::under_way: {
      const SumsUnderWay::Waiting waiting{&*under_way_};
      return start_under_way(request).wait();
    }
    case Path::two_levels: return two_levels_->run(request);
    case Path::backend_order: return sum_in_backend_order(communicator_, request);
    case Path::one_rank: return one_rank_.run(request);
  }
}

Work ReductionPlane::start_under_way(const Request& request) {
  std::vector<std::shared_ptr<const SumsUnderWay::Message>> started;
  const auto numbers = request.subtrees ? request.subtrees->shares().numbers() : std::span<const int>{};
  const auto parts_of = [&](const TensorView& message) {
    return request.subtrees ? request.subtrees->parts_of(message) : std::vector<TensorView>{};
  };
  for (const TensorView& flat : request.tensors)
    started.push_back(under_way_->start(flat, request.rule(communicator_.size()), {parts_of(flat), numbers}));
  for (const Sliced& message : request.slices)
    for_each_piece(message, [&](const TensorView& piece, SliceBounds bounds) {
      started.push_back(request.is_sum()
                            ? under_way_->start_scatter(piece, bounds, request.rule(1), {parts_of(piece), numbers})
                            : under_way_->start_gather(piece, bounds));
    });
  return work_of(*under_way_, std::move(started));
}

void ReductionPlane::sum_in_places(const Request& request) {
  const TensorView& flat = request.tensors.front();
  PlacedSum::make(*request.subtrees, request.subtrees->parts_of(flat), flat, [this](const TensorView& integers) {
    run({.kind = Request::Kind::all_reduce, .tensors = {&integers, 1}});
  });
}

Work ReductionPlane::start(Request request) {
  const TensorView& memory = request.slices.empty() ? request.tensors.front() : request.slices.front().memory;
  const Class& some = class_of(static_cast<std::int64_t>(memory.bytes()));
  Order order = order_for(some, request);
  const std::int64_t bytes = padded(memory.bytes());
  if (order == Order::tree && request.shards > 0 && sums_subtrees_by_nodes() && bytes > short_bytes) {
    order = Order::nodes;
    request.nodes_have_subtrees = !request.subtrees;
  }
  const bool by_nodes = order == Order::nodes && two_levels_;
  // Slices are those of the rest, in its order. Only the trees are cut into slices, and over several nodes not those of
  // 16-bit floats, which are rounded once. Everything else is summed as a whole, for its bits.
  const bool is_tree = order == Order::tree || order == Order::nodes;
  const bool has_halves =
      &some == &rest() && order == some.order && is_tree && !(by_nodes && is_16_bit_float(memory.dtype()));
  if (request.kind == Request::Kind::to_owners && !has_halves)
    request = {.kind = Request::Kind::all_reduce,
               .tensors = {&memory, 1},
               .shards = request.shards,
               .subtrees = request.subtrees,
               .nodes_have_subtrees = request.nodes_have_subtrees};
  if (by_nodes && memory.dtype() == DType::f32) request.wire = compression_;

  const Path path = path_of(order, request.kind, bytes, request.wire.value_or(memory.dtype()));
  place(request, path);
  if (request.subtrees && request.kind == Request::Kind::all_reduce && takes_whole(path, {&memory, 1}, bytes))
    return later(request, [this](const Request& kept) { sum_in_places(kept); });
  if (path == Path::under_way) return start_under_way(request);
  if (path == Path::two_levels) return two_levels_->start(request);
  if (path == Path::backend_order && device_ != DeviceKind::cpu)
    return start_in_backend_order(communicator_, request.op, {memory});
  return later(request, [this, path](const Request& kept) { run(path, kept); });
}

Work ReductionPlane::start_sums(const Request& request) {
  std::vector<Work> started;
  for_each_class(request.tensors, [&](const Class& some, std::span<const TensorView> of_class) {
    if (device_ == DeviceKind::cpu || some.order != Order::backend) {
      Request part = request;
      part.tensors = of_class;
      return started.push_back(later(part, [this, &some](const Request& kept) { run_messages(some, kept); }));
    }
    // A GPU's backend works meanwhile.
    for (std::vector<TensorView>& parts : messages_of(some.packing, of_class))
      started.push_back(start_in_backend_order(communicator_, request.op, std::move(parts)));
  });
  return all_of(std::move(started));
}

}  // namespace lockstep::detail
