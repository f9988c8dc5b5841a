// The internals of TorchScript that the bridge stands on. If a version of LibTorch changes them, so does this file.
#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>
#include <lockstep/torch/script.hpp>

#include "core/control/meeting_point.hpp"
#include "sync/group/replica_group.hpp"
#include "sync/strategy/inside.hpp"
#include "torch/replica.hpp"

namespace lockstep::libtorch {
namespace {

namespace jit = ::torch::jit;

/// A script's buffers: where it keeps them, and the tensors that they were at first, which the strategy knows.
class ScriptBuffers {
 public:
  ScriptBuffers(const jit::Module& module, std::string kind) : kind_{std::move(kind)} {
    std::unordered_set<const void*> seen;
    for (const auto& [prefix, part] : module.named_modules()) {
      if (!seen.insert(part._ivalue().get()).second) continue;
      const auto type = part.type();
      for (std::size_t slot = 0; slot < type->numAttributes(); ++slot) {
        if (!type->is_buffer(slot) || !part._ivalue()->getSlot(slot).isTensor()) continue;
        const at::Tensor tensor = part._ivalue()->getSlot(slot).toTensor();
        if (!tensor.defined()) continue;
        const std::string& name = type->getAttributeName(slot);
        Place place{part._ivalue(), slot, prefix.empty() ? name : prefix + "." + name, tensor};
        const auto first =
            std::ranges::find_if(places_, [&](const Place& each) { return each.tensor.is_same(tensor); });
        if (first != places_.end()) {
          place.is_first = false;
          place.same_as = first->name;
          first->same_as = place.name;
        }
        places_.push_back(std::move(place));
      }
    }
  }

  NamedTensors tensors() const {
    NamedTensors named;
    for (const Place& each : places_)
      if (each.is_first) named.emplace_back(each.name, each.tensor);
    return named;
  }

  /// By their names, since a script's layers have no types.
  std::vector<at::Tensor> statistics() const {
    std::vector<at::Tensor> found;
    for (const Place& each : places_)
      if (std::ranges::any_of(std::array{"running_mean", "running_var", "num_batches_tracked"},
                              [&](std::string_view name) { return each.name.ends_with(name); }))
        found.push_back(each.tensor);
    return found;
  }

  /// Makes buffers the tensors again that they were at first, with the values that they have now.
  void bring_home() {
    const at::NoGradGuard plain;
    for (Place& each : places_) {
      const c10::IValue value = each.object->getSlot(each.slot);
      const at::Tensor now = value.isTensor() ? value.toTensor() : at::Tensor{};
      if (now.is_same(each.tensor)) continue;
      if (!each.same_as.empty())
        throw InvalidArgument{
            fmt::format("a new tensor in the place of buffer '{}' of {}, which is also buffer '{}': expected a change "
                        "in place, or two tensors",
                        each.name, kind_, each.same_as)};
      if (!now.defined() || now.sizes() != each.tensor.sizes() || now.scalar_type() != each.tensor.scalar_type())
        throw InvalidArgument{fmt::format("buffer '{}' of {} has become {}; expected {}", each.name, kind_,
                                          text_of(now), text_of(each.tensor))};
      each.tensor.copy_(now);
      each.object->setSlot(each.slot, each.tensor);
    }
  }

  BufferPlaces exchange(const BufferPlaces& values) {
    BufferPlaces before;
    for (std::size_t i = 0; i < places_.size(); ++i) {
      before.push_back(places_[i].object->getSlot(places_[i].slot));
      places_[i].object->setSlot(places_[i].slot, values.empty() ? c10::IValue{places_[i].tensor} : values[i]);
    }
    return before;
  }

 private:
  struct Place {
    jit::ObjectPtr object;
    std::size_t slot;
    std::string name;
    at::Tensor tensor;
    bool is_first = true;      ///< of the names of that tensor
    std::string same_as = {};  ///< another one
  };

  static std::string text_of(const at::Tensor& tensor) {
    if (!tensor.defined()) return "no tensor";
    return fmt::format("{}{}", c10::toString(tensor.scalar_type()), c10::str(tensor.sizes()));
  }

  std::string kind_;
  std::vector<Place> places_;
};

NamedTensors parameters_of(const jit::Module& module) {
  NamedTensors named;
  std::unordered_set<const c10::TensorImpl*> seen;
  for (const auto& [name, tensor] : module.named_parameters())
    if (tensor.defined() && seen.insert(tensor.unsafeGetTensorImpl()).second) named.emplace_back(name, tensor);
  return named;
}

ModuleParts parts_of(const jit::Module& module) {
  const auto name = module.type()->name();
  const std::string kind = name ? name->name() : "script";
  const auto buffers = std::make_shared<ScriptBuffers>(module, kind);
  return {.kind = kind,
          .parameters = [module] { return parameters_of(module); },
          .buffers = [buffers] { return buffers->tensors(); },
          .bring_buffers_home = [buffers] { buffers->bring_home(); },
          .exchange_buffers = [buffers](const BufferPlaces& values) { return buffers->exchange(values); },
          .statistics = buffers->statistics()};
}

}  // namespace

DataParallel<jit::Module>::DataParallel(Strategy& strategy, jit::Module module,
                                        const ReplicatedModule::Options& options, Here here)
    : ReplicatedModule{[&] {
        ModuleParts parts = parts_of(module);
        if (module.named_parameters().size() == 0)
          inside(strategy).group().meeting().fail(std::make_exception_ptr(InvalidArgument{fmt::format(
              "the TorchScript module {} has no parameters; expected one that torch.jit.freeze has not made into "
              "constants",
              parts.kind)}));
        return std::make_shared<Impl>(strategy, std::move(parts), options, here);
      }()},
      module_{std::move(module)} {
  inside(*this).impl().prepare();
}

}  // namespace lockstep::libtorch
