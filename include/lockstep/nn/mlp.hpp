// The multilayer perceptron.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <lockstep/nn/dense.hpp>
#include <lockstep/nn/model.hpp>

namespace lockstep::nn {

struct MlpOptions {
  std::int64_t inputs = 784;
  /// Outputs of each hidden layer; there may be none.
  std::vector<std::int64_t> hidden = {512, 512};
  std::int64_t classes = 10;
  DType dtype = DType::f32;  ///< f32 or f64
  std::uint64_t seed = 1;    ///< of the initial weights
};

/// Dense layers "dense_0", "dense_1", … with ReLU between them, and softmax cross-entropy behind the last.
class Mlp final : public Model {
 public:
  /// COLL. Creates its variables, layer by layer, weight before bias. InvalidArgument before that for sizes
  /// below 1, or a dtype other than f32 and f64. `strategy` must outlive it; `kernels` are those of its device.
  Mlp(Strategy& strategy, const MlpOptions& options, std::shared_ptr<const ops::Kernels> kernels,
      Here here = Here::current());

  std::string_view name() const override { return "mlp"; }
  std::span<const Variable> variables() const override { return variables_; }
  ops::CrossEntropy train_shard(const SampleBatch& shard, const ShardPlace& place,
                                const GradientBuffer& gradients) override;
  ops::CrossEntropy evaluate_shard(const SampleBatch& shard) override;

 private:
  /// Room for the activations of one shard, as large as the largest capacity wanted so far: a step allocates
  /// nothing.
  struct Workspace {
    std::int64_t capacity = 0;
    std::vector<Tensor> outputs;  ///< of each layer; behind ReLU, for all but the last
    Tensor d_hidden;              ///< the gradient of one hidden layer's output
  };

  void reserve(std::int64_t capacity);

  /// The output of a layer for `rows` rows.
  TensorView output(std::size_t layer, std::int64_t rows) const;
  TensorView d_hidden(std::int64_t rows, std::int64_t columns) const;

  void forward(const SampleBatch& shard);
  void backward(const SampleBatch& shard, const GradientBuffer& gradients);

  MlpOptions options_;
  std::shared_ptr<const ops::Kernels> kernels_;
  Stream& stream_;
  std::vector<Dense> layers_;
  std::vector<Variable> variables_;
  Workspace workspace_;
};

}  // namespace lockstep::nn
