// The multilayer perceptron.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <lockstep/nn/dense.hpp>
#include <lockstep/nn/model.hpp>
#include <lockstep/nn/precision.hpp>

namespace lockstep::nn {

/// How the last layer's outputs are compared with the labels.
enum class Loss : std::uint8_t {
  cross_entropy,  ///< softmax cross-entropy of a logit for each class, with the label's number
  squared_error,  ///< (output - label)^2 of one output
};

struct MlpOptions {
  std::int64_t inputs = 784;
  /// Outputs of each hidden layer. May be empty.
  std::vector<std::int64_t> hidden = {512, 512};
  std::int64_t classes = 10;  ///< outputs of the last layer
  DType dtype = DType::f32;   ///< of the variables: f32 or f64
  std::uint64_t seed = 1;     ///< seeds the initial weights
  Precision precision = Precision::full;
  Loss loss = Loss::cross_entropy;
};

/// Dense layers "dense_0", "dense_1", … with ReLU between them, and a loss after the last. Under Loss::squared_error
/// the labels of a batch are numbers, [capacity] of the type of its inputs.
class Mlp final : public Model {
 public:
  /// COLL. Creates its variables, layer by layer, weight before bias. Before that, InvalidArgument for sizes below 1,
  /// a squared error of more than one output, a dtype other than f32 and f64, or f64 under bf16; ConfigError for
  /// kernels that do not take bf16 if the model is to compute in it. `strategy` must outlive it; `kernels` are those of
  /// its device.
  Mlp(Strategy& strategy, const MlpOptions& options, std::shared_ptr<const ops::Kernels> kernels,
      Here here = Here::current());
  ~Mlp() override;

  std::string_view name() const override { return "mlp"; }
  std::span<const Variable> variables() const override { return variables_; }
  ops::BatchLoss train_shard(const SampleBatch& shard, const ShardPlace& place,
                             const GradientBuffer& gradients) override;

  /// Computes layer by layer. A layer's outputs, input gradients and sums of weight gradients are each computed for all
  /// shards at once if that gives the same bits as shard by shard; under bf16 they are computed shard by shard. This is
  /// tried out, which blocks the host, when shards of a new number or capacity arrive, also in train_shard and
  /// evaluate_shard. DeviceError for kernels that do not repeat their bits.
  ops::BatchLoss train_shards(const BatchGroup& shards, std::span<const ShardPlace> places,
                              const GradientBuffer& sum) override;
  std::unique_ptr<Model> make_worker() const override;
  ops::BatchLoss evaluate_shard(const SampleBatch& shard) override;

  /// LOCAL, blocking. The outputs of the last layer for each sample present, as [samples, classes] row by row: logits,
  /// or predicted numbers. InvalidArgument as train_shard.
  std::vector<double> logits(const SampleBatch& batch);

 private:
  /// Memory for the activations of the largest number of rows so far, so that a step allocates nothing.
  struct Workspace {
    std::int64_t rows = 0;
    std::vector<Tensor> outputs;  ///< each layer's; after ReLU for all but the last
    Tensor d_hidden;              ///< gradient of one hidden layer's output
    Tensor inputs;                ///< rounded, under bf16
  };

  /// How shards are computed, and where they are added up.
  struct Shards;

  Mlp(const MlpOptions& options, std::shared_ptr<const ops::Kernels> kernels, Stream& stream);

  void reserve(std::int64_t rows);

  /// The output of a layer for `rows` rows.
  TensorView output(std::size_t layer, std::int64_t rows) const;
  TensorView d_hidden(std::int64_t rows, std::int64_t columns) const;

  void require(const SampleBatch& shard) const;
  /// The inputs as the first layer takes them: under bf16 they are rounded here.
  TensorView rounded(const TensorView& inputs);
  TensorView inputs_of(const BatchGroup& shards) const;
  DType activation_type() const;

  /// Takes all rows of `inputs`; leaves the logits, or numbers, in the output of the last layer.
  void forward(const TensorView& inputs, std::int64_t shards);
  /// Replaces these by their gradients.
  ops::BatchLoss losses(const BatchGroup& shards);
  void backward(const BatchGroup& shards, const GradientBuffer& sum);
  /// The gradients of one layer's variables, from its inputs and the gradient of its outputs.
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
