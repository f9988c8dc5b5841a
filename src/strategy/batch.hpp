// The leaves of one reduction: what the ranks must agree on, and the copies that are reduced in place.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include <lockstep/reduce/cross_device_ops.hpp>
#include <lockstep/tensor/tensor.hpp>

namespace lockstep::detail {

class Batch {
 public:
  /// Replaces `leaves` by copies on the same device, which it will reduce in place; they must outlive it. `stream` is
  /// that of the rank's device. InvalidArgument if `op` is not defined for one of them.
  Batch(ReduceOp op, std::vector<Tensor>& leaves, Stream& stream) : op_{op} {
    for (const Tensor& leaf : leaves) require_reducible(op, leaf.dtype());
    for (Tensor& leaf : leaves) {
      leaf = Tensor::copy_of(leaf.view(), leaf.device() == DeviceKind::cpu ? host_stream() : stream);
      views_.push_back(leaf.view());
    }
  }

  /// "reduce_to: sum of f32[3], i64[]".
  std::string text(std::string_view method) const {
    std::string text = fmt::format("{}: {} of ", method, name_of(op_));
    for (const TensorView& view : views_) (text += describe(view)) += ", ";
    if (!views_.empty()) text.resize(text.size() - 2);
    return text;
  }

  void all_reduce(CrossDeviceOps& reductions) const { reductions.all_reduce(op_, views_); }
  void reduce_to_one(CrossDeviceOps& reductions, int root) const { reductions.reduce_to_one(op_, views_, root); }
  void broadcast(CrossDeviceOps& reductions, int root) const { reductions.broadcast(views_, root); }

 private:
  ReduceOp op_;
  std::vector<TensorView> views_;
};

}  // namespace lockstep::detail
