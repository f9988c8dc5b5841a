// Stochastic gradient descent, with or without momentum.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include <lockstep/optim/optimizer.hpp>

namespace lockstep {

struct SgdOptions {
  LearningRate learning_rate;
  double momentum = 0;
  double weight_decay = 0;               ///< of variables of two or more dimensions: biases and norms are not decayed
  std::optional<double> clip_norm = {};  ///< the largest global norm that a gradient may have
  std::string name = "optimizer";        ///< optimizers of one name count their steps together
};

/// Without momentum: variable -= learning_rate * gradient. With it: velocity = momentum * velocity +
/// gradient, variable -= learning_rate * velocity. Weight decay adds weight_decay * variable to the gradient, behind
/// clipping: an L2 penalty, as in PyTorch's SGD. The velocities start at zero and live in the store's slot
/// "momentum", so optimizers that take turns on one variable share its velocity.
class Sgd : public Optimizer {
 public:
  /// InvalidArgument unless the momentum is in [0, 1), the weight decay a number from 0 and the norm a positive one.
  /// Without `kernels`, which the model may use too, it takes the automatic choice for the device of the variables.
  explicit Sgd(const SgdOptions& options, std::shared_ptr<const ops::Kernels> kernels = nullptr);

 protected:
  std::vector<std::string_view> slots() const override;
  void update(const ops::Kernels& kernels, const FlatRange& range, const ops::UpdateStep& step) override;

 private:
  double momentum_;
};

}  // namespace lockstep
