// Reducing the results of `map`.
#include <cstddef>
#include <limits>
#include <string>
#include <vector>

#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>
#include <lockstep/tf/extended/extended.hpp>

#include "core/values/walks.hpp"
#include "sync/reduce/arithmetic.hpp"
#include "sync/reduce/reductions.hpp"
#include "sync/strategy/inside.hpp"
#include "sync/strategy/reduced_leaves.hpp"
#include "sync/strategy/strategy_core.hpp"

namespace lockstep {
namespace {

const Tensor& dense(const detail::Leaf& leaf) {
  return std::get<Tensor>(leaf);
}

/// What the ranks would agree on only after each has added up its own items.
void require_alike(std::span<const std::vector<detail::Leaf>> items, std::span<const std::string> structures,
                   const detail::Call& call) {
  const auto& first = items.front();
  for (const auto& item : items) {
    if (item.size() != first.size())
      throw InvalidArgument{fmt::format("{}the items of a map have {} and {} leaves; expected the same structure",
                                        call.text(), first.size(), item.size())};
    for (std::size_t i = 0; i < first.size(); ++i) {
      if (!std::holds_alternative<Tensor>(item[i]))
        throw InvalidArgument{call.text() +
                              "what a map gives is added up item by item, which slices cannot be: give "
                              "it dense tensors"};
      const TensorView expected = dense(first[i]).view(), value = dense(item[i]).view();
      if (expected.shape() != value.shape() || expected.dtype() != value.dtype() || expected.device() != value.device())
        throw InvalidArgument{fmt::format("{}the items of a map are {} and {}; expected the same shape and type",
                                          call.text(), describe(expected), describe(value))};
    }
  }
  // Nests with as many leaves, but at other places, such as keys.
  for (const std::string& structure : structures)
    if (structure != structures.front())
      throw InvalidArgument{fmt::format("{}the items of a map are arranged{} and{}; expected the same structure",
                                        call.text(), structures.front(), structure)};
}

/// Sums item by item, in order. They are alike.
std::vector<detail::Leaf> sum_of_items(std::span<const std::vector<detail::Leaf>> items, Stream& of_device) {
  std::vector<detail::Leaf> sums;
  for (const detail::Leaf& leaf : items.front())
    sums.emplace_back(Tensor::copy_of(dense(leaf).view(), detail::stream_for(dense(leaf), of_device)));
  for (const auto& item : items.subspan(1)) {
    for (std::size_t i = 0; i < sums.size(); ++i)
      detail::add(dense(sums[i]).view(), dense(item[i]).view(), detail::stream_for(dense(sums[i]), of_device));
  }
  return sums;
}

/// A rank without an item cannot tell the shapes of its part.
void require_item_each(const detail::ReduceCall& call, std::int64_t items) {
  const int replicas = call.strategy.num_replicas_in_sync();
  if (items < replicas)
    throw InvalidArgument{fmt::format(
        "{}the map has {} items for {} replicas, and one without an item cannot tell the shapes of its part; "
        "expected an item for each, or plain numbers",
        detail::Call{call.name, call.here}.text(), items, replicas)};
}

}  // namespace

void detail::reduce_mapped(const ReduceCall& reduction, const Description& type, void* first, std::size_t count,
                           std::int64_t items) {
  if (type.kind != Description::Kind::number) require_item_each(reduction, items);
  std::vector<std::vector<Leaf>> of_items;
  std::vector<std::string> structures;
  for (std::size_t i = 0; i < count; ++i) {
    const void* const item = static_cast<const std::byte*>(first) + i * type.size;
    of_items.push_back(leaves_in({type, item}));
    structures.push_back(structure_of({type, item}));
  }

  const Call call{reduction.name, reduction.here};
  Strategy& strategy = reduction.strategy;
  require_cross_replica(strategy, call);
  inside(strategy).require_not_captured(reduction.here);
  require_alike(of_items, structures, call);
  for (const Leaf& leaf : of_items.front()) require_reducible(call, reduction.op, dense(leaf).dtype());
  if (reduction.op == ReduceOp::mean && (items < 1 || items > std::numeric_limits<int>::max()))
    throw InvalidArgument{fmt::format("{}a mean over {} items", call.text(), items)};
  std::vector<Leaf> sums = sum_of_items(of_items, strategy.stream());
  // The ranks agree on the number of items, so it needs no reduction.
  ReduceCall sum = reduction;
  sum.op = ReduceOp::sum;
  sum.destination += fmt::format(" for the {} over {} items", name_of(reduction.op), items);
  sum.reduce(sums, structures.front());
  if (reduction.op == ReduceOp::mean)
    for (const Leaf& leaf : sums)
      divide(dense(leaf).view(), static_cast<int>(items), stream_for(dense(leaf), strategy.stream()));
  set_leaves({type, first}, sums);
}

}  // namespace lockstep
