// The convnet's layers, the memory they work in, and the passes of shards through them.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include <lockstep/sync/reduce/fixed_order.hpp>

#include "core/order/shares.hpp"
#include "models/nn/batch_norm.hpp"
#include "models/nn/conv2d.hpp"
#include "models/nn/convnet.hpp"
#include "models/nn/dense.hpp"
#include "models/nn/dropout.hpp"
#include "models/ops/image_kernels.hpp"
#include "sync/reduce/declared_sums.hpp"

namespace lockstep::nn {

/// The convnet itself. The methods that Convnet has too have its contracts.
class Convnet::Network final : private JointModel {
 public:
  /// `model` is the convnet that this is the network of: it hears of every pass (Model::begin).
  Network(const Convnet& model, Strategy& strategy, const ConvnetOptions& options,
          std::shared_ptr<const ops::Kernels> kernels, Here here);

  /// The network of a worker of another's model.
  Network(const Convnet& model, const Network& other);

  std::span<const Variable> variables() const { return variables_; }
  ops::Answer<ops::Kernels::BatchLoss> start_shard(const SampleBatch& shard, const Model::ShardPlace& place,
                                                   const GradientBuffer& gradients);
  JointModel* joint() { return options_.batch_norm == ConvnetOptions::BatchNorm::whole_batch ? this : nullptr; }
  ops::Kernels::BatchLoss evaluate_shard(const SampleBatch& shard);
  std::vector<double> logits(const SampleBatch& batch);

  std::int64_t statistics() const;
  void absorb_statistics(const TensorView& total, std::int64_t samples);
  std::vector<SyncOnReadVariable> moving_averages() const;

 private:
  /// A convolution and what follows it. Without batch norm the tensors are empty.
  struct Stage {
    Conv2d convolution;
    FixedOrderAccumulator shard_tree;  ///< of tensors [filters]
    std::optional<BatchNorm> norm = {};
    std::int64_t first_statistic = 0;  ///< where the norm's begin among the model's
    Tensor statistics = {};            ///< over all samples that are normalised together
    Tensor d_parameters = {};          ///< the gradients of gamma and beta, summed over those samples
    /// The sums of a rank's subtrees but the last.
    std::array<Tensor, Shares::most_subtrees - 1> of_subtrees = {};
  };

  /// Memory for the activations of one shard of the largest capacity so far, so that a step allocates nothing.
  struct Activations {
    std::int64_t capacity = 0;
    Tensor images;                  ///< rounded, under bf16
    std::array<Tensor, 2> sums;     ///< each convolution's; empty without batch norm
    std::array<Tensor, 2> outputs;  ///< each stage's
    Tensor pooled, hidden, logits;
    std::array<Tensor, 2> masks;  ///< for pooled and hidden; empty without dropout
    Tensor d_first, d_pooled, d_hidden;
    Tensor statistics;  ///< the shard's part
  };

  /// A shard on its way through the network.
  struct Shard {
    const SampleBatch& batch;
    const Activations& room;
    const Model::ShardPlace* place = nullptr;  ///< null in evaluation, like the gradients
    const GradientBuffer* gradients = nullptr;

    std::int64_t rows() const { return batch.inputs.shape().front(); }
  };

  static constexpr Range one_shard[] = {{0, 1}};

  /// Shards that go through the network side by side, layer by layer.
  struct Pass {
    std::vector<Shard> shards;
    std::int64_t samples = 0;                     ///< normalised together: in these shards and those of the other ranks
    std::span<const Range> subtrees = one_shard;  ///< JointBatch
    DeclaredSums* ranks = nullptr;                ///< null: no other ranks take part

    bool is_training() const { return shards.front().place != nullptr; }
  };

  std::vector<std::int64_t> joint_sums() const override;
  Losses train_jointly(const JointBatch& batch, std::span<const GradientBuffer> gradients,
                       DeclaredSums& ranks) override;

  void create_stage(Strategy& strategy, std::size_t index, const Here& here);
  void reserve_sums(Stage& stage);
  void require_images(const SampleBatch& shard) const;
  void require_trainable(const SampleBatch& shard, const GradientBuffer& gradients) const;
  void require_joint(const JointBatch& batch, std::span<const GradientBuffer> gradients) const;
  void reserve(std::size_t shards, std::int64_t capacity);
  Activations make_activations(std::int64_t capacity) const;

  TensorView of(const Shard& shard, const Tensor& whole) const;
  TensorView sums_of_samples(std::size_t stage, const Shard& shard) const;
  TensorView images(const Shard& shard) const;
  TensorView input_of(std::size_t stage, const Shard& shard) const;
  TensorView d_output_of(std::size_t stage, const Shard& shard) const;
  TensorView statistics_of(std::size_t stage, const TensorView& all) const;
  ops::Normalisation normalisation(std::size_t stage, const Pass& pass) const;

  Losses train(const Pass& pass);
  void clear_empty_shards(const Pass& pass) const;

  void round_images(const Pass& pass) const;
  void forward(const Pass& pass);
  void forward_stage(std::size_t index, const Pass& pass, ops::Kernels::Activation activation);
  void measure(std::size_t index, const Pass& pass);
  void forward_head(const Shard& shard);
  void drop(std::size_t layer, const Shard& shard, const TensorView& x);

  void backward(const Pass& pass);
  void backward_head(const Shard& shard);
  void backward_stage(std::size_t index, const Pass& pass);
  void backward_norm(std::size_t index, const Pass& pass);
  void undrop(std::size_t layer, const Shard& shard, const TensorView& dx);

  using PartOfShard = std::function<TensorView(const Shard&)>;
  void sum_up(Stage& stage, const Pass& pass, const std::vector<PartOfShard>& parts, const TensorView& sum);

  const Convnet& model_;
  ConvnetOptions options_;
  std::shared_ptr<const ops::Kernels> kernels_;
  Stream& stream_;
  std::vector<Stage> stages_;
  std::vector<Dense> dense_;
  std::vector<Dropout> dropout_;
  std::vector<Variable> variables_;
  std::vector<Activations> activations_;  ///< one for each shard that has gone side by side
};

}  // namespace lockstep::nn
