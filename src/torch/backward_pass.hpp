// One backward pass of autograd through replicated modules.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "torch/replica.hpp"

namespace lockstep::libtorch {

using ModuleList = std::vector<ReplicatedModule::Impl*>;

/// What the ranks compare of them.
std::string text_of(const ModuleList& modules);

/// InvalidArgument for a loss that is no real number, or whose samples cannot be counted.
void require_loss(const Loss& loss);

/// The sum over the samples; 0 if there are none. Waits for a GPU.
double sum_of(const Loss& loss, TorchDevice& device);

class BackwardPass {
 public:
  /// InvalidArgument if the loss depends on a leaf that nobody would train. `shared` nodes are those that other ranks'
  /// losses may depend on: where this one does not, with gradients of zeros. Modules and loss must outlive it.
  BackwardPass(const ModuleList& modules, const Loss& loss, const GraphNodes& shared = {});

  /// `take(module, parameter)`, in which `module` counts as given, is called each time that a gradient has been added
  /// to the parameter's `.grad`: once, as a rule, and again if a nested backward pass adds another part.
  void run(const std::function<void(std::size_t module, std::size_t parameter)>& take);

  /// What it also touches: leaves whose `.grad` stays as it was, and other modules with such leaves.
  const std::vector<at::Tensor>& foreign() const { return foreign_; }
  const std::vector<ReplicatedModule::Impl*>& strangers() const { return strangers_; }

 private:
  void ignore(const at::Tensor& leaf);
  void look_at(const at::Tensor& leaf, const GraphNode& node);

  const ModuleList& modules_;
  const Loss& loss_;
  GraphNodes others_;
  std::vector<at::Tensor> foreign_;
  std::vector<ReplicatedModule::Impl*> strangers_;
};

}  // namespace lockstep::libtorch
