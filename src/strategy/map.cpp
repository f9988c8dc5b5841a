// Reducing the results of `map`.
#include <limits>

#include <fmt/format.h>

#include <lockstep/base/error.hpp>
#include <lockstep/strategy/strategy.hpp>

#include "reduce/arithmetic.hpp"
#include "strategy/batch.hpp"
#include "strategy/strategy_core.hpp"

namespace lockstep {
namespace {

const Tensor& dense(const detail::Leaf& leaf) {
  if (const auto* const tensor = std::get_if<Tensor>(&leaf)) return *tensor;
  throw InvalidArgument{"what a map gives is added up item by item, which slices cannot be: give it dense tensors"};
}

/// Sums item by item, in order.
std::vector<detail::Leaf> sum_of(std::span<const std::vector<detail::Leaf>> items, Stream& of_device) {
  std::vector<detail::Leaf> sums;
  for (const detail::Leaf& leaf : items.front())
    sums.emplace_back(Tensor::copy_of(dense(leaf).view(), detail::stream_for(dense(leaf), of_device)));
  for (const auto& item : items.subspan(1)) {
    if (item.size() != sums.size())
      throw InvalidArgument{fmt::format("the items of a map have {} and {} leaves; expected the same structure",
                                        sums.size(), item.size())};
    for (std::size_t i = 0; i < sums.size(); ++i) {
      const TensorView sum = dense(sums[i]).view(), value = dense(item[i]).view();
      if (sum.shape() != value.shape() || sum.dtype() != value.dtype() || sum.device() != value.device())
        throw InvalidArgument{fmt::format("the items of a map are {} and {}; expected the same shape and type",
                                          describe(sum), describe(value))};
      detail::add(sum, value, detail::stream_for(dense(sums[i]), of_device));
    }
  }
  return sums;
}

}  // namespace

Scope StrategyExtended::enter(std::string_view call, const std::optional<Here>& here) const {
  require_context(call, here);
  return strategy_->scope();
}

int StrategyExtended::replica() const {
  return strategy_->group().rank();
}
int StrategyExtended::replicas() const {
  return strategy_->num_replicas_in_sync();
}

void StrategyExtended::require_item_each(std::int64_t items) const {
  if (items < replicas())
    throw InvalidArgument{
        fmt::format("the map has {} items for {} replicas, and one without an item cannot tell the shapes of its part; "
                    "expected an item for each, or plain numbers",
                    items, replicas())};
}

StrategyExtended::Leaves StrategyExtended::reduce_mapped(ReduceOp op, std::span<const Leaves> of_items,
                                                         std::int64_t items, std::optional<OneReplica> destination,
                                                         std::string_view more, const Here& here) {
  const detail::Call call{"reduce_to", here};
  detail::require_cross_replica(*strategy_, call);
  strategy_->require_not_captured();
  for (const detail::Leaf& leaf : of_items.front()) detail::require_reducible(call, op, dense(leaf).dtype());
  if (op == ReduceOp::mean && (items < 1 || items > std::numeric_limits<int>::max()))
    throw InvalidArgument{fmt::format("a mean over {} items", items)};
  Leaves sums = sum_of(of_items, strategy_->stream());
  detail::Batch batch{call, ReduceOp::sum, sums, strategy_->stream()};
  const std::string method = destination ? fmt::format("reduce_to replica {}", destination->id) : "reduce_to";
  // The ranks agree on the number of items, so it needs no reduction.
  strategy_->agree(TagKind::reduce, here,
                   batch.text(method, fmt::format("{} for the {} over {} items", more, name_of(op), items)));
  if (destination) {
    batch.reduce_to_one(strategy_->reductions(), destination->id);
  } else {
    batch.all_reduce(strategy_->reductions());
  }
  if (op == ReduceOp::mean)
    for (const detail::Leaf& sum : sums)
      detail::divide(dense(sum).view(), static_cast<int>(items), detail::stream_for(dense(sum), strategy_->stream()));
  return sums;
}

}  // namespace lockstep
