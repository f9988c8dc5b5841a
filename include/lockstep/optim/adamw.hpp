// Adam with decoupled weight decay.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include <lockstep/optim/optimizer.hpp>

namespace lockstep {

struct AdamWOptions {
  LearningRate learning_rate;
  ops::AdamWMoments moments = {};
  double weight_decay = 0;               ///< for variables of two or more dimensions; biases and norms do not decay
  std::optional<double> clip_norm = {};  ///< scales a step's gradient down to this global norm if it is longer
  std::string name = {};                 ///< as in Optimizer; empty: "optimizer", "optimizer_1", …
};

/// AdamW as in UpdateKernels::adamw, where t counts the steps, this one included. The moments start at zero and live in
/// the store's slots "first_moment" and "second_moment".
class AdamW : public Optimizer {
 public:
  /// InvalidArgument unless the betas are in [0, 1), epsilon and the norm are positive, the weight decay is 0 or more,
  /// and all are finite. `kernels` as for Sgd.
  explicit AdamW(const AdamWOptions& options, std::shared_ptr<const ops::Kernels> kernels = nullptr);

 protected:
  std::vector<std::string_view> slots() const override;
  void update(const ops::Kernels& kernels, const VariableStore::FlatRange& range, const ops::UpdateStep& step) override;

 private:
  ops::AdamWMoments moments_;
};

}  // namespace lockstep
