// Stochastic gradient descent, with or without momentum.
#pragma once

#include <optional>
#include <string>

#include <lockstep/core/base/export.hpp>
#include <lockstep/sync/optim/optimizer.hpp>

namespace lockstep {

/// Gradient descent: variable -= learning_rate * gradient; with momentum, velocity = momentum * velocity + gradient and
/// variable -= learning_rate * velocity. Weight decay is an L2 penalty: it adds weight_decay * variable to the
/// gradient, after clipping, as in PyTorch's SGD. The velocities start at zero and live in the store's slot "momentum".
class LOCKSTEP_API Sgd : public Optimizer {
 public:
  struct Options {
    LearningRate learning_rate;
    double momentum = 0;
    double weight_decay = 0;               ///< for variables of two or more dimensions; biases and norms do not decay
    std::optional<double> clip_norm = {};  ///< scales a step's gradient down to this global norm if it is longer
    std::string name = {};                 ///< as in Optimizer; empty: "optimizer", "optimizer_1", …
    bool portable = false;                 ///< for portable kernels: the same bits on every machine
  };

  /// InvalidArgument unless the momentum is in [0, 1), the weight decay is 0 or more, the norm is positive, and all are
  /// finite.
  explicit Sgd(const Options& options);

 protected:
  std::vector<std::string_view> slots() const override;
  void update(const Kernels& kernels, const VariableStore::FlatRange& range, const UpdateStep& step) override;
  bool keeps_zero_gradients() const override { return momentum_ == 0; }
  bool updates_by_element() const override { return true; }

 private:
  double momentum_;
};

}  // namespace lockstep
