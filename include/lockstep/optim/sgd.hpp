// Stochastic gradient descent, with or without momentum.
#pragma once

#include <memory>

#include <lockstep/ops/kernels.hpp>
#include <lockstep/optim/optimizer.hpp>

namespace lockstep {

struct SgdOptions {
  double learning_rate;
  double momentum = 0;
};

/// Without momentum: variable -= learning_rate * gradient. With it: velocity = momentum * velocity +
/// gradient, variable -= learning_rate * velocity. The velocities start at zero and live in the store's slot
/// "momentum", so optimizers that take turns on one variable share its velocity.
class Sgd : public Optimizer {
 public:
  /// With the automatic choice of kernels for the device of the variables. InvalidArgument unless the learning rate is
  /// a positive number and the momentum in [0, 1).
  explicit Sgd(SgdOptions options);

  /// With `kernels`, which the model may use too.
  Sgd(SgdOptions options, std::shared_ptr<const ops::Kernels> kernels);

 protected:
  void update(const FlatRange& range, double divisor) override;

 private:
  SgdOptions options_;
  std::shared_ptr<const ops::Kernels> kernels_;  ///< chosen by the first update where none were given
};

}  // namespace lockstep
