// The multilayer perceptron.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <lockstep/models/nn/models.hpp>

#include "models/nn/dense.hpp"
#include "models/nn/shard_losses.hpp"

namespace lockstep::nn {

/// The model of make_mlp.
class Mlp final : public Model {
 public:
  /// As make_mlp.
  Mlp(Strategy& strategy, const MlpOptions& options, std::shared_ptr<const ops::Kernels> kernels,
      Here here = Here::current());
  ~Mlp() override;

  std::string_view name() const override { return "mlp"; }
  std::span<const Variable> variables() const override { return variables_; }
  BatchLoss train_shard(const SampleBatch& shard, const ShardPlace& place, const GradientBuffer& gradients) override;

  BatchLoss train_shards(const SampleBatch::Group& shards, std::span<const ShardPlace> places,
                         const GradientBuffer& sum) override;

  /// As start_shards, but computes weight gradients shard by shard if the watch wants one that it does not take in
  /// parts. The rows of an audited shard are computed with those of the rank's own shards.
  BatchLoss train_watched(const SampleBatch::Group& shards, std::span<const ShardPlace> places,
                          const GradientBuffer& sum, ShardWatch& watch) override;
  /// Computes layer by layer. A layer's outputs, input gradients and sums of weight gradients are each computed for all
  /// shards at once if that gives the same bits as shard by shard; under bf16 they are computed shard by shard. This is
  /// tried out, which blocks the host, when shards of a new number or capacity arrive, also in evaluate_shard.
  /// DeviceError for kernels that do not repeat their bits. A squared error blocks the host until it is known.
  ops::Answer<BatchLoss> start_shards(const SampleBatch::Group& shards, std::span<const ShardPlace> places,
                                      const GradientBuffer& sum) override;
  std::unique_ptr<Model> make_worker() const override;
  BatchLoss evaluate_shard(const SampleBatch& shard) override;

  std::vector<double> logits(const SampleBatch& batch) override;

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
  TensorView inputs_of(const SampleBatch::Group& shards) const;
  DType activation_type() const;

  /// Takes all rows of `inputs`; leaves the logits, or numbers, in the output of the last layer.
  void forward(const TensorView& inputs, std::int64_t shards);
  /// Replaces these by their gradients.
  ShardLosses losses(const SampleBatch::Group& shards);
  /// Both passes. `watch` may be null.
  ShardLosses pass(const SampleBatch::Group& shards, std::span<const ShardPlace> places, const GradientBuffer& sum,
                   ShardWatch* watch);
  void backward(const SampleBatch::Group& shards, const GradientBuffer& sum, ShardWatch* watch);
  /// The gradients of one layer's variables, from its inputs and the gradient of its outputs.
  void add_up_gradients(std::size_t layer, const SampleBatch::Group& shards, const TensorView& x, const TensorView& dy,
                        bool at_once);

  MlpOptions options_;
  std::shared_ptr<const ops::Kernels> kernels_;
  Stream& stream_;
  std::vector<Dense> layers_;
  std::vector<Variable> variables_;
  Workspace workspace_;
  std::unique_ptr<Shards> shards_;
};

}  // namespace lockstep::nn
