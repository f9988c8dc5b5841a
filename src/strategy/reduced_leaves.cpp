#include "strategy/reduced_leaves.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "comm/communicator.hpp"
#include "reduce/operand_text.hpp"
#include "reduce/reductions.hpp"

namespace lockstep::detail {
Stream& stream_for(const Tensor& tensor, Stream& of_device) {
  return tensor.device() == DeviceKind::cpu ? Stream::host() : of_device;
}

void require_rows(const Call& call, std::span<const Tensor> tensors) {
  for (const Tensor& tensor : tensors)
    if (tensor.shape().empty())
      throw InvalidArgument{
          fmt::format("{}{} has no rows; expected one or more dimensions", call.text(), describe(tensor.view()))};
}

void copy_leaves(std::vector<Leaf>& leaves, Stream& of_device) {
  const auto copy_there = [&](Tensor& tensor) {
    tensor = Tensor::copy_of(tensor.view(), stream_for(tensor, of_device));
  };
  for (Leaf& leaf : leaves) {
    if (auto* const tensor = std::get_if<Tensor>(&leaf)) {
      copy_there(*tensor);
    } else {
      copy_there(std::get<IndexedSlices>(leaf).values);
      copy_there(std::get<IndexedSlices>(leaf).indices);
    }
  }
}

ReducedLeaves::ReducedLeaves(const Call& call, ReduceOp op, std::vector<Leaf>& leaves, Stream& stream)
    : op_{op}, leaves_{leaves} {
  for (const Leaf& leaf : leaves) {
    if (const auto* const tensor = std::get_if<Tensor>(&leaf)) {
      require_reducible(call, op, tensor->dtype());
    } else {
      require_reducible(call, op, std::get<IndexedSlices>(leaf));
    }
  }
  copy_leaves(leaves, stream);
  for (const Leaf& leaf : leaves)
    if (const auto* const tensor = std::get_if<Tensor>(&leaf)) views_.push_back(tensor->view());
}

std::string ReducedLeaves::text(std::string_view method, std::string_view more) const {
  return fmt::format("{}: {} of {}{}", method, name_of(op_), leaves_text(), more);
}

std::string ReducedLeaves::leaves_text() const {
  std::vector<std::string> texts;
  for (const Leaf& leaf : leaves_)
    texts.push_back(std::visit([](const auto& each) { return operand_text(each); }, leaf));
  return fmt::format("{}", fmt::join(texts, ", "));
}

void ReducedLeaves::all_reduce(Reductions& reductions) {
  for_both([&](auto some) { reductions.all_reduce(op_, some); });
}
Work ReducedLeaves::start_dense(Reductions& reductions) {
  return views_.empty() ? Work::done() : reductions.start_all_reduce(op_, views_);
}
void ReducedLeaves::all_reduce_slices(Reductions& reductions) {
  for_slices([&](auto some) { reductions.all_reduce(op_, some); });
}
void ReducedLeaves::reduce_to_one(Reductions& reductions, int root) {
  for_both([&](auto some) { reductions.reduce_to_one(op_, some, root); });
}
void ReducedLeaves::broadcast(Reductions& reductions, int root) {
  for_both([&](auto some) { reductions.broadcast(some, root); });
}

/// Calls `collective` once for the dense leaves and once for the slices, which it replaces.
template <class Collective>
void ReducedLeaves::for_both(Collective&& collective) {
  if (!views_.empty()) collective(std::span<const TensorView>{views_});
  for_slices(collective);
}

template <class Collective>
void ReducedLeaves::for_slices(Collective&& collective) {
  std::vector<IndexedSlices> all;
  for (const Leaf& leaf : leaves_)
    if (const auto* const slices = std::get_if<IndexedSlices>(&leaf)) all.push_back(*slices);
  if (all.empty()) return;
  collective(std::span{all});
  auto next = all.begin();
  for (Leaf& leaf : leaves_)
    if (std::holds_alternative<IndexedSlices>(leaf)) leaf = std::move(*next++);
}

}  // namespace lockstep::detail
