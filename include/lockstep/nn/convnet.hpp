// A small convolutional network.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include <lockstep/nn/batch_norm.hpp>
#include <lockstep/nn/joint_model.hpp>
#include <lockstep/nn/model.hpp>
#include <lockstep/nn/precision.hpp>

namespace lockstep::nn {

struct ConvnetOptions {
  std::int64_t height = 28;  ///< of the images
  std::int64_t width = 28;
  std::int64_t channels = 1;                       ///< of the images: [height, width, channels] in memory
  std::array<std::int64_t, 2> filters = {32, 64};  ///< outputs of each convolution
  std::int64_t hidden = 128;                       ///< outputs of the first dense layer
  std::int64_t classes = 10;
  BatchNormKind batch_norm = BatchNormKind::none;  ///< after each convolution
  double dropout = 0;                              ///< dropout rate after the pooling and after the first dense layer
  DType dtype = DType::f32;                        ///< of the variables: f32 or f64
  std::uint64_t seed = 1;                          ///< seeds the initial weights and dropout
  Precision precision = Precision::full;
};

/// Two 3 x 3 convolutions, "conv_0" and "conv_1", each followed by ReLU, and the second by max-pooling too; then the
/// dense layers "dense_0", with ReLU, and "dense_1", and softmax cross-entropy. Batch norm puts "batch_norm_0" and
/// "batch_norm_1" between a convolution and its ReLU. They normalise each shard by its own statistics or, as a joint
/// model, all shards by those of the whole batch. Rows of padding never count. Evaluations normalise by the moving
/// averages from training.
class Convnet final : public Model {
 public:
  /// COLL. Creates its variables, layer by layer. Before that, InvalidArgument for images smaller than 6 x 6, other
  /// sizes below 1, a dropout rate outside [0, 1), a dtype other than f32 and f64, and f64 under bf16;
  /// ConfigError for kernels without those for images, or without bf16 if the model is to compute in it. `strategy`
  /// must outlive it; `kernels` are those of its device.
  Convnet(Strategy& strategy, const ConvnetOptions& options, std::shared_ptr<const ops::Kernels> kernels,
          Here here = Here::current());

  ~Convnet() override;

  std::string_view name() const override { return "convnet"; }
  std::span<const Variable> variables() const override;
  ops::BatchLoss train_shard(const SampleBatch& shard, const ShardPlace& place,
                             const GradientBuffer& gradients) override;
  JointModel* joint() override;
  /// Null for a joint model.
  std::unique_ptr<Model> make_worker() const override;
  ops::BatchLoss evaluate_shard(const SampleBatch& shard) override;

  /// LOCAL, blocking. The logits of each sample present, as [samples, classes] row by row, by the moving averages.
  /// InvalidArgument as train_shard.
  std::vector<double> logits(const SampleBatch& batch);

  /// Its batch norm layers' statistics, one layer after the other.
  std::int64_t statistics() const override;
  void absorb_statistics(const TensorView& total, std::int64_t samples) override;
  std::vector<SyncOnReadVariable> moving_averages() const override;

 private:
  class Network;

  /// A worker of `other`.
  explicit Convnet(const Network& other);

  std::unique_ptr<Network> network_;
};

}  // namespace lockstep::nn
