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
  ~Mlp() override;

  std::string_view name() const override { return "mlp"; }
  std::span<const Variable> variables() const override { return variables_; }
  ops::CrossEntropy train_shard(const SampleBatch& shard, const ShardPlace& place,
                                const GradientBuffer& gradients) override;

  /// Layer by layer, and each layer's outputs, gradients of inputs and sums of weights' gradients for all shards at
  /// once, as far as that gives the same bits. That is tried out when shards of their number and capacity come for the
  /// first time, as it is for train_shard and evaluate_shard; DeviceError for kernels that have other bits when they
  /// compute the same again.
  ops::CrossEntropy train_shards(const BatchGroup& shards, std::span<const ShardPlace> places,
                                 const GradientBuffer& sum) override;
  ops::CrossEntropy evaluate_shard(const SampleBatch& shard) override;

 private:
  /// Room for the activations of shards, as large as the largest number of rows wanted so far: a step allocates
  /// nothing.
  struct Workspace {
    std::int64_t rows = 0;
    std::vector<Tensor> outputs;  ///< of each layer; behind ReLU, for all but the last
    Tensor d_hidden;              ///< the gradient of one hidden layer's output
  };

  /// How shards are computed, and what they add up in.
  struct Shards;

  void reserve(std::int64_t rows);

  /// The output of a layer for `rows` rows.
  TensorView output(std::size_t layer, std::int64_t rows) const;
  TensorView d_hidden(std::int64_t rows, std::int64_t columns) const;

  void require(const SampleBatch& shard) const;
  /// For as many rows as there are in `inputs`; leaves the logits in the last layer's output.
  void forward(const TensorView& inputs, std::int64_t shards);
  /// The gradients of the logits, in their place.
  ops::CrossEntropy losses(const BatchGroup& shards);
  void backward(const BatchGroup& shards, const GradientBuffer& sum);
  /// Those of one layer's variables, from its inputs and the gradient of its outputs.
  void add_up_gradients(std::size_t layer, const BatchGroup& shards, const TensorView& x, const TensorView& dy);

  MlpOptions options_;
  std::shared_ptr<const ops::Kernels> kernels_;
  Stream& stream_;
  std::vector<Dense> layers_;
  std::vector<Variable> variables_;
  Workspace workspace_;
  std::unique_ptr<Shards> shards_;
};

}  // namespace lockstep::nn
