// A loss of LibTorch together with what it is: a sum over samples, or a mean.
#pragma once

#include <utility>
#include <vector>

#include <torch/types.h>

namespace lockstep::libtorch {

/// The loss of a rank's batch, or of one shard. A mean and a sum of the same samples lead to the same gradients:
///
///     net.backward(context, Loss::mean(torch::cross_entropy_loss(scores, labels), labels.size(0)));
///
/// A default-made one is the loss of a rank without samples.
class Loss {
 public:
  Loss() = default;

  /// `value`, one real number, is the sum of the losses of `samples` samples. With 0 samples it is not read, and may
  /// be NaN or undefined.
  static Loss sum(::torch::Tensor value, double samples) { return {std::move(value), samples, false}; }

  /// `value` is such a sum divided by `samples`: the number of samples, or what the loss was divided by in its place,
  /// such as the sum of the weights of a weighted cross-entropy, or the number of tokens that count.
  static Loss mean(::torch::Tensor value, double samples) { return {std::move(value), samples, true}; }

  /// The same loss, but keeps its graph for another backward pass. For the first of two losses that share a part of it.
  Loss retain_graph() const {
    Loss loss = *this;
    loss.retains_graph_ = true;
    return loss;
  }

  /// The same loss, but without gradients with respect to `leaves`: their `.grad` does not change. Every tensor
  /// that the loss depends on and that needs a gradient must be a parameter of the modules that train, or be one of
  /// these, such as the points of a gradient penalty, or the parameters of a discriminator that the generator's loss
  /// goes through. Anything else is an InvalidArgument, since nobody would train it. A frozen parameter costs less.
  Loss ignoring(std::vector<::torch::Tensor> leaves) const {
    Loss loss = *this;
    loss.ignored_ = std::move(leaves);
    return loss;
  }

  const ::torch::Tensor& value() const { return value_; }
  double samples() const { return samples_; }
  bool is_mean() const { return is_mean_; }
  bool retains_graph() const { return retains_graph_; }
  const std::vector<::torch::Tensor>& ignored() const { return ignored_; }

 private:
  Loss(::torch::Tensor value, double samples, bool is_mean)
      : value_{std::move(value)}, samples_{samples}, is_mean_{is_mean} {}

  ::torch::Tensor value_;
  double samples_ = 0;
  bool is_mean_ = false;
  bool retains_graph_ = false;
  std::vector<::torch::Tensor> ignored_;
};

}  // namespace lockstep::libtorch
