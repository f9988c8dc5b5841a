// What the bridge needs to know of a module, of whichever kind it is.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/ivalue.h>
#include <torch/nn/module.h>

namespace lockstep::libtorch {

/// In the module's order, each tensor once, under its first name.
using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

/// What a script's buffers are at a time: tensors, or whatever it has put in their places.
using BufferPlaces = std::vector<c10::IValue>;

/// Keeps the module alive.
struct ModuleParts {
  std::string kind;                               ///< "Net", for messages
  std::function<NamedTensors()> parameters = {};  ///< those that it has now
  std::function<NamedTensors()> buffers = {};
  std::function<void()> bring_buffers_home = [] {};  ///< where a forward pass may put other tensors in their place
  /// There, puts `values` in all of these places, or the buffers themselves if that is empty. Returns what was there.
  std::function<BufferPlaces(const BufferPlaces& values)> exchange_buffers = [](const auto&) { return BufferPlaces{}; };
  std::vector<at::Tensor> tables = {};               ///< parameters whose gradients are sparse
  std::vector<at::Tensor> statistics = {};           ///< buffers of norms of torch's
  std::vector<std::string> max_norms = {};           ///< parameters that a forward pass changes
  std::shared_ptr<::torch::nn::Module> module = {};  ///< null if it is of another kind
};

/// Calls `visit(name, module)` for `module` itself, as "", which need not be owned by a pointer, and all of its parts.
template <class Visit>
void for_each_module(const ::torch::nn::Module& module, Visit&& visit) {
  visit(std::string{}, module);
  for (const auto& part : module.named_modules("", false)) visit(part.key(), *part.value());
}

/// Whether `tensor` itself is one of `tensors`.
inline bool holds(const std::vector<at::Tensor>& tensors, const at::Tensor& tensor) {
  return std::ranges::any_of(tensors, [&](const at::Tensor& each) { return each.is_same(tensor); });
}

/// "'a', 'b' and 3 more".
std::string first_names(const std::vector<std::string>& names);

ModuleParts parts_of(std::shared_ptr<::torch::nn::Module> module);

}  // namespace lockstep::libtorch
