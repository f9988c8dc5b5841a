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
  double weight_decay = 0;               ///< of variables of two or more dimensions: biases and norms are not decayed
  std::optional<double> clip_norm = {};  ///< the largest global norm that a gradient may have
  std::string name = "optimizer";        ///< optimizers of one name count their steps together
};

/// AdamW as UpdateKernels::adamw has it, where t is the number of steps, this one included. The moments start at zero
/// and live in the store's slots "first_moment" and "second_moment".
class AdamW : public Optimizer {
 public:
  /// InvalidArgument unless the betas are in [0, 1), epsilon is a positive number, the weight decay one from 0 and the
  /// norm a positive one. `kernels` as Sgd's.
  explicit AdamW(const AdamWOptions& options, std::shared_ptr<const ops::Kernels> kernels = nullptr);

 protected:
  std::vector<std::string_view> slots() const override;
  void update(const ops::Kernels& kernels, const FlatRange& range, const ops::UpdateStep& step) override;

 private:
  ops::AdamWMoments moments_;
};

}  // namespace lockstep
