#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>
#include <lockstep/sync/strategy/reduce_call.hpp>
#include <lockstep/sync/strategy/strategy.hpp>

#include "core/control/tag.hpp"
#include "core/values/walks.hpp"
#include "sync/reduce/reductions.hpp"
#include "sync/strategy/inside.hpp"
#include "sync/strategy/reduced_leaves.hpp"

namespace lockstep::detail {

void ReduceCall::reduce(AnyValue value) const {
  std::vector<Leaf> leaves = leaves_in(value);
  reduce(leaves, structure_of(value));
  set_leaves(value, leaves);
}

void ReduceCall::reduce(std::vector<Leaf>& leaves, std::string_view structure) const {
  require_cross_replica(strategy, {name, here});
  inside(strategy).require_not_captured(here);
  ReducedLeaves reduced{{name, here}, op, leaves, strategy.stream()};
  const std::string method = to ? fmt::format("{} replica {}", name, *to) : std::string{name};
  inside(strategy).agree(TagKind::reduce, here, reduced.text(method, fmt::format("{}{}", structure, destination)));
  if (to) {
    reduced.reduce_to_one(inside(strategy).reductions(), *to);
  } else {
    reduced.all_reduce(inside(strategy).reductions());
  }
}

void ReduceCall::reduce_itself(AnyValue value, bool is_mirrored) const {
  require_cross_replica(strategy, {name, here});
  require_reducible(op, DType::f64);  // a sum or a mean, whatever the value
  const int replicas = strategy.num_replicas_in_sync();
  if (op == ReduceOp::mean) return;
  if (!is_mirrored && replicas == 1) {
    std::vector<Leaf> leaves = leaves_in(value);
    copy_leaves(leaves, strategy.stream());
    return set_leaves(value, leaves);
  }
  const std::string begin = Call{name, here}.text();
  constexpr std::string_view refusal = "value cannot be reduced with the given reduce op";
  if (is_mirrored)
    throw InvalidArgument{
        fmt::format("{}A mirrored {} {}: it is one value, the same on every replica", begin, refusal, name_of(op))};
  throw InvalidArgument{
      fmt::format("{}A non-distributed {} {}: it does not say what each of the {} replicas adds, as a PerReplica does",
                  begin, refusal, name_of(op), replicas)};
}

}  // namespace lockstep::detail
