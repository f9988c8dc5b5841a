#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/types.h>

#include <lockstep/core/base/error.hpp>
#include <lockstep/sync/strategy/strategy.hpp>
#include <lockstep/torch/collectives.hpp>

#include "core/device/device.hpp"
#include "core/tensor/inside.hpp"
#include "core/values/walks.hpp"
#include "sync/reduce/reductions.hpp"
#include "sync/strategy/inside.hpp"
#include "sync/strategy/reduced_leaves.hpp"
#include "torch/replica.hpp"

namespace lockstep::libtorch::detail {
namespace {

using lockstep::detail::Call;
using lockstep::detail::Description;

/// The leaves of a nest, a number as a tensor on the host, and how they are arranged.
struct TensorList {
  std::vector<at::Tensor> tensors;
  std::string structure;  ///< " in {a: tensor b: tensor }"; empty for a tensor alone
};

TensorList list_of(AnyValue nest) {
  TensorList list{{}, lockstep::detail::structure_of(nest)};
  lockstep::detail::visit_leaves(nest, [&](const Description& type, void* leaf) {
    list.tensors.push_back(type.carrier ? at::empty({}, type_of(*type.carrier)) : *static_cast<at::Tensor*>(leaf));
    if (type.carrier) std::memcpy(list.tensors.back().data_ptr(), leaf, type.size);
  });
  return list;
}

void set_tensors(AnyValue nest, const std::vector<at::Tensor>& tensors) {
  auto next = tensors.begin();
  lockstep::detail::visit_leaves(nest, [&](const Description& type, void* leaf) {
    if (!type.carrier) *static_cast<at::Tensor*>(leaf) = *next;
    if (type.carrier) std::memcpy(leaf, next->data_ptr(), type.size);
    ++next;
  });
}

enum class Wanted { sums, rows, values };

/// A call of one of these functions on this rank, before it meets the others.
class Collective {
 public:
  Collective(ReplicaContext& context, const Call& call, const TensorList& list, Wanted wanted, ReduceOp op = {})
      : call_{call}, list_{list}, wanted_{wanted}, stream_{context.strategy().stream()} {
    lockstep::detail::require_current(context, call);
    inside(context.strategy()).require_not_captured(*call.here);
    device_ = make_torch_device(stream_);
    for (const at::Tensor& tensor : list.tensors) {
      require_usable(tensor);
      operands_.push_back(plain(tensor));
      if (wanted == Wanted::sums) lockstep::detail::require_reducible(call, op, view(operands_.back()).dtype());
    }
  }

  TorchDevice& device() const { return *device_; }
  /// Contiguous, without a graph, in the memory that they had if they were contiguous.
  std::vector<at::Tensor>& operands() { return operands_; }

  TensorView view(const at::Tensor& tensor) const {
    return view_of(tensor, tensor.device() == device_->device() ? stream_.kind() : DeviceKind::cpu);
  }
  std::vector<TensorView> views() const {
    std::vector<TensorView> views;
    for (const at::Tensor& tensor : operands_) views.push_back(view(tensor));
    return views;
  }

  /// Tensors in the same memory, which they keep.
  std::vector<Tensor> shared() const {
    std::vector<Tensor> shared;
    for (const at::Tensor& tensor : operands_) {
      const TensorView all = view(tensor);
      shared.push_back(lockstep::tensor_in(
          std::make_shared<Buffer>(all.data(), all.bytes(), all.device(), [tensor](void*) {}), all));
    }
    return shared;
  }

  /// COLL. `operation` is what the ranks compare beside the call and the operands: "sum of ".
  void meet(ReplicaContext& context, std::string_view operation, const std::function<void(Reductions&)>& make) {
    device_->on_stream([&] { inside(context).declared_merge(text(operation), make, *call_.here); });
  }

 private:
  /// "all_reduce: sum of f32[3], bool[2]".
  std::string text(std::string_view operation) const {
    std::vector<std::string> texts;
    for (std::size_t i = 0; i < operands_.size(); ++i) {
      const TensorView all = view(operands_[i]);
      const bool is_flag = list_.tensors[i].scalar_type() == at::kBool;
      std::string shape = describe(all.shape());
      if (wanted_ == Wanted::rows) shape.replace(1, shape.find_first_of(",]") - 1, "…");
      texts.push_back(fmt::format("{}{}{}", is_flag ? "bool" : name_of(all.dtype()), shape,
                                  all.device() == DeviceKind::cpu ? "" : " on a GPU"));
    }
    return fmt::format("{}: {}{}{}", call_.name, operation, fmt::join(texts, ", "), list_.structure);
  }

  void require_usable(const at::Tensor& tensor) const {
    const auto refuse = [&](const std::string& what) {
      const std::string which =
          list_.tensors.size() == 1
              ? "the tensor"
              : fmt::format("tensor {} of {}", &tensor - list_.tensors.data() + 1, list_.tensors.size());
      throw InvalidArgument{fmt::format("{}{} {}", call_.text(), which, what)};
    };
    if (!tensor.defined()) refuse("is undefined");
    if (tensor.layout() != at::kStrided)
      refuse(fmt::format("has the layout {}; expected a dense one", c10::str(tensor.layout())));
    if (!tensor.device().is_cpu() && tensor.device() != device_->device())
      refuse(fmt::format("is on {}; expected the CPU{}", tensor.device().str(),
                         device_->device().is_cpu() ? "" : " or " + device_->device().str()));
    const at::ScalarType type = tensor.scalar_type();
    if (type == at::kBool && wanted_ == Wanted::sums)
      refuse("is bool, which has no sums; expected numbers, such as its to(torch::kLong)");
    if (type != at::kBool && !libtorch::dtype_of(type))
      refuse(fmt::format("is {}; expected f32, f64, f16, bf16, i32, i64 or u8{}", c10::toString(type),
                         tensor.is_complex() ? ", such as its view_as_real" : ""));
    if (wanted_ == Wanted::rows && tensor.dim() == 0) refuse("has no rows; expected one or more dimensions");
    if (at::GradMode::is_enabled() && tensor.grad_fn())
      refuse(fmt::format("has come out of a graph ({}), whose gradient would be lost; expected its detach()",
                         tensor.grad_fn()->name()));
  }

  static at::Tensor plain(const at::Tensor& tensor) {
    const at::Tensor rows = tensor.detach().resolve_neg().contiguous();
    return rows.scalar_type() == at::kBool ? rows.view(at::kByte) : rows;
  }

  Call call_;
  const TensorList& list_;
  Wanted wanted_;
  Stream& stream_;
  std::unique_ptr<TorchDevice> device_;
  std::vector<at::Tensor> operands_;
};

/// With the memory of `tensor` on the host. On a GPU in new memory of torch's, which torch gives to others in the order
/// of its own work: it must not be given back in that of the strategy's stream.
at::Tensor torch_tensor_of(const Tensor& tensor, TorchDevice& device, Stream& stream) {
  const TensorView from = tensor.view();
  const auto options = at::TensorOptions{}.dtype(type_of(from.dtype()));
  if (from.device() == DeviceKind::cpu)
    return at::for_blob(from.data(), from.shape()).deleter([tensor](void*) {}).options(options).make_tensor();
  const at::Tensor made = at::empty(from.shape(), options.device(device.device()));
  copy(from, view_of(made, from.device()), stream);
  return made;
}

std::vector<at::Tensor> torch_tensors_of(const std::vector<Tensor>& tensors, TorchDevice& device, Stream& stream) {
  std::vector<at::Tensor> made;
  device.on_stream([&] {  // torch may still use what is new memory here
    for (const Tensor& tensor : tensors) made.push_back(torch_tensor_of(tensor, device, stream));
  });
  return made;
}

/// Bytes become flags again where those came from flags.
std::vector<at::Tensor> with_flags(std::vector<at::Tensor> results, const TensorList& list) {
  for (std::size_t i = 0; i < results.size(); ++i)
    if (list.tensors[i].scalar_type() == at::kBool) results[i] = results[i].view(at::kBool);
  return results;
}

}  // namespace

void all_reduce(ReplicaContext& context, ReduceOp op, AnyValue nest, const Here& here) {
  const TensorList list = list_of(nest);
  Collective collective{context, {"all_reduce", here}, list, Wanted::sums, op};
  for (at::Tensor& each : collective.operands()) each = each.clone();
  const std::vector<TensorView> sums = collective.views();
  collective.meet(context, fmt::format("{} of ", name_of(op)), [&](Reductions& reductions) {
    if (!sums.empty()) reductions.all_reduce(op, sums);
  });
  set_tensors(nest, collective.operands());
}

void all_gather(ReplicaContext& context, AnyValue nest, const Here& here) {
  const TensorList list = list_of(nest);
  Collective collective{context, {"all_gather", here}, list, Wanted::rows};
  std::vector<Tensor> rows = collective.shared();
  collective.meet(context, {}, [&](Reductions& reductions) { reductions.all_gather(rows); });
  set_tensors(nest, with_flags(torch_tensors_of(rows, collective.device(), context.strategy().stream()), list));
}

void broadcast(ReplicaContext& context, AnyValue nest, const Here& here) {
  const TensorList list = list_of(nest);
  Collective collective{context, {"broadcast", here}, list, Wanted::values};
  const bool sends = context.replica_id_in_sync_group(here) == 0;
  for (at::Tensor& each : collective.operands()) each = sends ? each.clone() : at::empty_like(each);
  const std::vector<TensorView> values = collective.views();
  collective.meet(context, {}, [&](Reductions& reductions) {
    if (!values.empty()) reductions.broadcast(values, 0);
  });
  set_tensors(nest, with_flags(collective.operands(), list));
}

class StartedTensors {
 public:
  StartedTensors(ReplicaContext& context, std::vector<Tensor> tensors, std::string_view structure, ReduceOp op,
                 const Here& here)
      : context_{context},
        tensors_{std::move(tensors)},
        started_{inside(context).start(op, {tensors_.begin(), tensors_.end()}, structure, here)} {}

  std::vector<at::Tensor> wait(const Here& here) {
    lockstep::detail::wait_for(started_, tensors_, here);
    Stream& stream = context_.strategy().stream();
    return torch_tensors_of(tensors_, *make_torch_device(stream), stream);
  }

 private:
  ReplicaContext& context_;
  std::vector<Tensor> tensors_;  ///< until `wait`, the operands
  std::shared_ptr<lockstep::detail::StartedReduction> started_;
};

std::shared_ptr<StartedTensors> start(ReplicaContext& context, ReduceOp op, AnyValue nest, const Here& here) {
  const TensorList list = list_of(nest);
  Collective collective{context, {"all_reduce_async", here}, list, Wanted::sums, op};
  // The strategy's stream copies them when it comes there, and torch does not wait for that.
  if (context.strategy().stream().kind() != DeviceKind::cpu)
    for (at::Tensor& each : collective.operands()) each = each.clone();
  collective.device().stream_follows();
  return std::make_shared<StartedTensors>(context, collective.shared(), list.structure, op, here);
}

void wait_for(const std::shared_ptr<StartedTensors>& started, AnyValue nest, const Here& here) {
  std::shared_ptr<lockstep::detail::StartedReduction> none;
  if (!started) lockstep::detail::wait_for(none, nest, here);  // throws
  set_tensors(nest, started->wait(here));
}

}  // namespace lockstep::libtorch::detail
