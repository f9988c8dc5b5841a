#include "sync/strategy/reduced_leaves.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/control/tag.hpp"
#include "sync/reduce/operand_text.hpp"
#include "sync/strategy/inside.hpp"

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

void broadcast_leaves(Strategy& strategy, const Call& call, std::vector<Leaf>& leaves, std::string_view more) {
  const Here here = call.here.value_or(Here{});
  require_cross_replica(strategy, call);
  inside(strategy).require_not_captured(here);
  ReducedLeaves reduced{call, ReduceOp::sum, leaves, strategy.stream()};
  inside(strategy).agree(TagKind::broadcast, here, reduced.leaves_text() + std::string{more});
  reduced.broadcast(inside(strategy).reductions(), 0);
}

std::string destination_text(const Variable& variable) {
  return fmt::format(" for {}", variable.label());
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

}  // namespace lockstep::detail
