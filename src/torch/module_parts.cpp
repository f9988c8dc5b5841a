#include "torch/module_parts.hpp"

#include <unordered_set>

namespace lockstep::libtorch {
namespace {

NamedTensors each_once(const ::torch::OrderedDict<std::string, at::Tensor>& values) {
  NamedTensors result;
  std::unordered_set<const c10::TensorImpl*> seen;
  for (const auto& each : values)
    if (each.value().defined() && seen.insert(each.value().unsafeGetTensorImpl()).second)
      result.emplace_back(each.key(), each.value());
  return result;
}

}  // namespace

ModuleParts parts_of(std::shared_ptr<::torch::nn::Module> module) {
  return {.kind = module->name(),
          .parameters = [module] { return each_once(module->named_parameters()); },
          .buffers = [module] { return each_once(module->named_buffers()); }};
}

}  // namespace lockstep::libtorch
