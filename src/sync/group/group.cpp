#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>
#include <lockstep/sync/group/group.hpp>

#include "core/control/meeting_point.hpp"
#include "core/control/tag.hpp"
#include "sync/group/replica_group.hpp"
#include "sync/reduce/operand_text.hpp"
#include "sync/reduce/reductions.hpp"

namespace lockstep {
namespace {

/// Agreements carry the number of the strategy that asks. Here none does: place and text tell them from strategy 0's.
constexpr int no_strategy = 0;

void agree(ReplicaGroup& group, TagKind kind, const detail::GroupCall& call) {
  group.meeting().agree(kind, no_strategy, call.here, call.text, {.site = call.site});
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

Group Group::anywhere() const {
  Group same = *this;
  same.compares_places_ = false;
  return same;
}

detail::GroupCall Group::call(std::string text, const Here& here) const {
  if (!compares_places_) text += ", at any place";
  return {std::move(text), here, compares_places_ ? Tag::Site::compared : Tag::Site::told};
}

void Group::all_reduce(const TensorView& values, Here here) {
  all_reduce(ReduceOp::sum, values, here);
}

void Group::all_reduce(ReduceOp op, const TensorView& values, Here here) {
  require_here(values, group_->stream());
  op == ReduceOp::exact_sum ? require_exact(values) : require_reducible(op, values.dtype());
  agree(*group_, TagKind::reduce, call(fmt::format("all_reduce: {} of {}", name_of(op), operand_text(values)), here));
  group_->reductions().all_reduce(op, std::span{&values, 1});
}

void Group::add_up_words(std::span<std::int64_t> words, DType of, const Here& here) {
  agree(*group_, TagKind::reduce, call(fmt::format("all_reduce: exact sum of {}", name_of(of)), here));
  const TensorView values = view_of(words);
  group_->reductions().all_reduce(ReduceOp::sum, std::span{&values, 1});
}

void Group::broadcast(const TensorView& values, int root, Here here) {
  require_here(values, group_->stream());
  if (root < 0 || root >= size())
    throw InvalidArgument{fmt::format("broadcast from rank {}: expected one of 0 to {}", root, size() - 1)};
  agree(*group_, TagKind::broadcast, call(fmt::format("{} from rank {}", operand_text(values), root), here));
  group_->reductions().broadcast(std::span{&values, 1}, root);
}

Tensor Group::gather(Tensor values, const Here& here) {
  std::array tensors{std::move(values)};
  agree(*group_, TagKind::reduce, call("all_gather: " + rows_text(tensors), here));
  group_->reductions().all_gather(tensors);
  return tensors.front();
}

}  // namespace lockstep
