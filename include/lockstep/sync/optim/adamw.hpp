// Adam with decoupled weight decay.
#pragma once

#include <optional>
#include <string>

#include <lockstep/core/base/export.hpp>
#include <lockstep/sync/optim/optimizer.hpp>

namespace lockstep {

/// Adam with decoupled weight decay (Loshchilov and Hutter, Decoupled Weight Decay Regularization, 2019, algorithm 2;
/// the decay is multiplied by the learning rate, as in PyTorch's AdamW). t counts the steps, this one included:
///   first = beta1 * first + (1 - beta1) * gradient
///   second = beta2 * second + (1 - beta2) * gradient^2
///   variable -= learning_rate * (first / (1 - beta1^t) / (sqrt(second / (1 - beta2^t)) + epsilon)
///                                + weight_decay * variable)
/// The moments start at zero and live in the store's slots "first_moment" and "second_moment".
class LOCKSTEP_API AdamW : public Optimizer {
 public:
  using Moments = detail::AdamWMoments;

  struct Options {
    LearningRate learning_rate;
    Moments moments = {};
    double weight_decay = 0;               ///< for variables of two or more dimensions; biases and norms do not decay
    std::optional<double> clip_norm = {};  ///< scales a step's gradient down to this global norm if it is longer
    std::string name = {};                 ///< as in Optimizer; empty: "optimizer", "optimizer_1", …
    bool portable = false;                 ///< for portable kernels: the same bits on every machine
  };

  /// As for Sgd; InvalidArgument also unless the betas are in [0, 1), and epsilon is positive and finite.
  explicit AdamW(const Options& options);

 protected:
  std::vector<std::string_view> slots() const override;
  bool updates_by_element() const override { return true; }
  void update(const Kernels& kernels, const VariableStore::FlatRange& range, const UpdateStep& step) override;

 private:
  Moments moments_;
};

}  // namespace lockstep
