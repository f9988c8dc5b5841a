// A small convolutional network.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include <lockstep/nn/batch_norm.hpp>
#include <lockstep/nn/conv2d.hpp>
#include <lockstep/nn/dense.hpp>
#include <lockstep/nn/dropout.hpp>
#include <lockstep/nn/model.hpp>

namespace lockstep::nn {

struct ConvnetOptions {
  std::int64_t height = 28;  ///< of the images, which have one channel
  std::int64_t width = 28;
  std::array<std::int64_t, 2> filters = {32, 64};  ///< outputs of each convolution
  std::int64_t hidden = 128;                       ///< outputs of the first dense layer
  std::int64_t classes = 10;
  bool batch_norm = false;   ///< after each convolution
  double dropout = 0;        ///< the rate of it after the pooling and after the first dense layer
  DType dtype = DType::f32;  ///< f32 or f64
  std::uint64_t seed = 1;    ///< of the initial weights, and of dropout
};

/// Two convolutions of 3 x 3, "conv_0" and "conv_1", with ReLU behind each and max-pooling behind the second, then the
/// dense layers "dense_0", with ReLU, and "dense_1", and softmax cross-entropy. With batch norm "batch_norm_0" and
/// "batch_norm_1" stand between a convolution and its ReLU; each shard is normalised by statistics of its own, of its
/// samples and not of the padding, and an evaluation by the moving averages of them.
class Convnet final : public Model {
 public:
  /// COLL. Creates its variables, layer by layer. Before that InvalidArgument for images of less than 6 x 6, other
  /// sizes below 1, a rate outside [0, 1), and a dtype other than f32 and f64; ConfigError for kernels that have none
  /// for images. `strategy` must outlive it; `kernels` are those of its device.
  Convnet(Strategy& strategy, const ConvnetOptions& options, std::shared_ptr<const ops::Kernels> kernels,
          Here here = Here::current());

  std::string_view name() const override { return "convnet"; }
  std::span<const Variable> variables() const override { return variables_; }
  ops::CrossEntropy train_shard(const SampleBatch& shard, const ShardPlace& place,
                                const GradientBuffer& gradients) override;
  ops::CrossEntropy evaluate_shard(const SampleBatch& shard) override;

  /// Those of its batch norm layers, one after the other.
  std::int64_t statistics() const override;
  void absorb_statistics(const TensorView& total, std::int64_t samples) override;
  std::vector<SyncOnReadVariable> moving_averages() const override;

 private:
  /// A convolution and what is done to its sums.
  struct Stage {
    Conv2d convolution;
    std::optional<BatchNorm> norm;
    std::int64_t first_statistic = 0;  ///< where the norm's are among the model's
  };

  /// Room for the activations of one shard, as large as the largest capacity wanted so far: a step allocates
  /// nothing.
  struct Workspace {
    std::int64_t capacity = 0;
    std::array<Tensor, 2> sums;     ///< of each convolution; empty without batch norm
    std::array<Tensor, 2> outputs;  ///< of each stage
    Tensor pooled, hidden, logits;
    std::array<Tensor, 2> masks;  ///< of pooled and hidden; empty without dropout
    Tensor d_first, d_pooled, d_hidden;
    Tensor statistics;
  };

  /// One way through the network.
  struct Pass {
    const SampleBatch& shard;
    const ShardPlace* place;  ///< none: an evaluation

    std::int64_t rows() const { return shard.inputs.shape().front(); }
  };

  void create_stage(Strategy& strategy, std::size_t index, const Here& here);
  void reserve(std::int64_t capacity);

  TensorView images(const Pass& pass) const;
  TensorView of(const Pass& pass, const Tensor& whole) const;
  TensorView statistics_of(std::size_t stage, const TensorView& all) const;
  ops::Normalisation normalisation(std::size_t stage, const Pass& pass) const;

  void forward(const Pass& pass);
  void forward_stage(std::size_t index, const Pass& pass, const TensorView& x, ops::Activation activation);
  void drop(std::size_t layer, const Pass& pass, const TensorView& x);

  void backward(const Pass& pass, const GradientBuffer& gradients);
  void backward_stage(std::size_t index, const Pass& pass, const TensorView& x, const TensorView& dy,
                      const GradientBuffer& gradients);
  void undrop(std::size_t layer, const Pass& pass, const TensorView& dx);

  ConvnetOptions options_;
  std::shared_ptr<const ops::Kernels> kernels_;
  Stream& stream_;
  std::vector<Stage> stages_;
  std::vector<Dense> dense_;
  std::vector<Dropout> dropout_;
  std::vector<Variable> variables_;
  Workspace workspace_;
};

}  // namespace lockstep::nn
