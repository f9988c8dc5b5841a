#include <array>
#include <span>
#include <utility>

#include <fmt/format.h>

#include <lockstep/base/error.hpp>
#include <lockstep/group/group.hpp>

#include "control/meeting_point.hpp"
#include "control/tag.hpp"
#include "group/replica_group.hpp"
#include "reduce/operand_text.hpp"
#include "reduce/reductions.hpp"

namespace lockstep {
namespace {

/// Agreements carry the number of the strategy that asks. Here none does: place and text tell them from strategy 0's.
constexpr int no_strategy = 0;

void require_here(ReplicaGroup& group, const TensorView& tensor) {
  if (tensor.device() != DeviceKind::cpu && tensor.device() != group.stream().kind())
    throw InvalidArgument{fmt::format("{} is on a GPU, and this rank owns none: expected a tensor in the host's memory",
                                      describe(tensor))};
}

}  // namespace

int Group::rank() const {
  return group_->rank();
}
int Group::size() const {
  return group_->size();
}

Group Group::subset(std::span<const int> ranks, Here here) const {
  return Group{group_->subset(ranks, here)};
}

void Group::all_reduce(const TensorView& values, Here here) {
  require_here(*group_, values);
  require_reducible(ReduceOp::sum, values.dtype());
  group_->meeting().agree(TagKind::reduce, no_strategy, here,
                          fmt::format("all_reduce: sum of {}", operand_text(values)));
  group_->reductions().all_reduce(ReduceOp::sum, std::span{&values, 1});
}

void Group::broadcast(const TensorView& values, int root, Here here) {
  require_here(*group_, values);
  if (root < 0 || root >= size())
    throw InvalidArgument{fmt::format("broadcast from rank {}: expected one of 0 to {}", root, size() - 1)};
  group_->meeting().agree(TagKind::broadcast, no_strategy, here,
                          fmt::format("{} from rank {}", operand_text(values), root));
  group_->reductions().broadcast(std::span{&values, 1}, root);
}

Tensor Group::gather(Tensor values, const Here& here) {
  std::array tensors{std::move(values)};
  group_->meeting().agree(TagKind::reduce, no_strategy, here, "all_gather: " + rows_text(tensors));
  group_->reductions().all_gather(tensors);
  return tensors.front();
}

}  // namespace lockstep
