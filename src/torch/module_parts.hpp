// What the bridge needs to know of a module, of whichever kind it is.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <torch/nn/module.h>

namespace lockstep::libtorch {

/// In the module's order, each tensor once, under its first name.
using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

/// Keeps the module alive.
struct ModuleParts {
  std::string kind;                               ///< "Net", for messages
  std::function<NamedTensors()> parameters = {};  ///< those that it has now
  std::function<NamedTensors()> buffers = {};
};

ModuleParts parts_of(std::shared_ptr<::torch::nn::Module> module);

}  // namespace lockstep::libtorch
