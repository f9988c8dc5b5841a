// Reducing the results of `map`.
#include <limits>

#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>
#include <lockstep/sync/strategy/strategy.hpp>

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

}  // namespace

void StrategyExtended::require_item_each(std::string_view call, std::int64_t items, const Here& here) const {
  if (items < replicas())
    throw InvalidArgument{fmt::format(
        "{}the map has {} items for {} replicas, and one without an item cannot tell the shapes of its part; "
        "expected an item for each, or plain numbers",
        detail::Call{call, here}.text(), items, replicas())};
}

StrategyExtended::Leaves StrategyExtended::reduce_mapped(std::string_view name, ReduceOp op,
                                                         std::span<const Leaves> of_items,
                                                         std::span<const std::string> structures, std::int64_t items,
                                                         Destination to, std::string_view more, const Here& here) {
  const detail::Call call{name, here};
  require_context(name, here);
  inside(*strategy_).require_not_captured(here);
  require_alike(of_items, structures, call);
  for (const detail::Leaf& leaf : of_items.front()) detail::require_reducible(call, op, dense(leaf).dtype());
  if (op == ReduceOp::mean && (items < 1 || items > std::numeric_limits<int>::max()))
    throw InvalidArgument{fmt::format("{}a mean over {} items", call.text(), items)};
  Leaves sums = sum_of_items(of_items, strategy_->stream());
  // The ranks agree on the number of items, so it needs no reduction.
  reduce(name, ReduceOp::sum, sums, to,
         fmt::format("{}{} for the {} over {} items", structures.front(), more, name_of(op), items), here);
  if (op == ReduceOp::mean)
    for (const detail::Leaf& sum : sums)
      detail::divide(dense(sum).view(), static_cast<int>(items), detail::stream_for(dense(sum), strategy_->stream()));
  return sums;
}

}  // namespace lockstep
