// The models of this library: a multilayer perceptron, a convolutional network and a language model. Each is made on
// every rank, creates its variables in the strategy, and then trains by `fit`, as a model of your own does.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include <lockstep/core/base/export.hpp>
#include <lockstep/models/nn/model.hpp>
#include <lockstep/models/ops/kernels.hpp>
#include <lockstep/sync/strategy/strategy.hpp>

namespace lockstep::nn {

struct MlpOptions {
  /// How the last layer's outputs are compared with the labels.
  enum class Loss : std::uint8_t {
    cross_entropy,  ///< softmax cross-entropy of one logit per class; a label is the number of a class
    squared_error,  ///< (output - label)^2 of one output
  };

  std::int64_t inputs = 784;
  /// Outputs of each hidden layer. May be empty.
  std::vector<std::int64_t> hidden = {512, 512};
  std::int64_t classes = 10;  ///< outputs of the last layer
  DType dtype = DType::f32;   ///< of the variables: f32 or f64
  std::uint64_t seed = 1;     ///< seeds the initial weights
  Model::Precision precision = Model::Precision::full;
  Loss loss = Loss::cross_entropy;
};

/// COLL. Makes dense layers "dense_0", "dense_1", … with ReLU between them, and a loss after the last. Under
/// Loss::squared_error the labels of a batch are numbers, [capacity] of the type of its inputs. Model::logits returns
/// the outputs of the last layer: logits, or predicted numbers.
///
/// Creates its variables, layer by layer, weight before bias. Before that, InvalidArgument for sizes below 1, a squared
/// error of more than one output, a dtype other than f32 and f64, or f64 under bf16. `strategy` must outlive the
/// model; `kernels` are those of its device.
///
/// Layers are computed for all shards of a rank at once where that gives the same bits as shard by shard. This is
/// tested, blocking the host, whenever the number or capacity of the shards is new. DeviceError if the test finds that
/// the kernels do not repeat their bits.
LOCKSTEP_API std::unique_ptr<Model> make_mlp(Strategy& strategy, const MlpOptions& options,
                                             std::shared_ptr<const ops::Kernels> kernels, Here here = Here::current());

struct ConvnetOptions {
  /// Whether the model uses batch norm, and over which samples the statistics are taken.
  enum class BatchNorm : std::uint8_t { none, per_shard, whole_batch };

  std::int64_t height = 28;  ///< of the images
  std::int64_t width = 28;
  std::int64_t channels = 1;                       ///< of the images: [height, width, channels] in memory
  std::array<std::int64_t, 2> filters = {32, 64};  ///< outputs of each convolution
  std::int64_t hidden = 128;                       ///< outputs of the first dense layer
  std::int64_t classes = 10;
  BatchNorm batch_norm = BatchNorm::none;  ///< after each convolution
  double dropout = 0;                      ///< dropout rate after the pooling and after the first dense layer
  DType dtype = DType::f32;                ///< of the variables: f32 or f64
  std::uint64_t seed = 1;                  ///< seeds the initial weights and dropout
  Model::Precision precision = Model::Precision::full;
};

/// COLL. Makes two 3 x 3 convolutions, "conv_0" and "conv_1", each followed by ReLU, and the second by max-pooling too;
/// then the dense layers "dense_0", with ReLU, and "dense_1", and softmax cross-entropy. Batch norm puts "batch_norm_0"
/// and "batch_norm_1" between a convolution and its ReLU. They normalise each shard by its own statistics or, as a
/// joint model, all shards by those of the whole batch. Rows of padding never count. Evaluations and Model::logits
/// normalise by the moving averages from training. The statistics are those of its batch norm layers, one layer after
/// the other.
///
/// Creates its variables, layer by layer. Before that, InvalidArgument for images smaller than 6 x 6, other sizes below
/// 1, a dropout rate outside [0, 1), a dtype other than f32 and f64, and f64 under bf16. `strategy` and `kernels` as
/// for make_mlp.
LOCKSTEP_API std::unique_ptr<Model> make_convnet(Strategy& strategy, const ConvnetOptions& options,
                                                 std::shared_ptr<const ops::Kernels> kernels,
                                                 Here here = Here::current());

struct GptOptions {
  std::int64_t layers = 4;
  std::int64_t heads = 4;
  std::int64_t width = 128;  ///< length of a position's vector; a multiple of `heads`
  std::int64_t context = 128;
  std::int64_t vocabulary = 256;
  DType dtype = DType::f32;  ///< of the variables: f32 or f64
  std::uint64_t seed = 1;    ///< seeds the initial weights
  Model::Precision precision = Model::Precision::full;
  /// The backward pass computes a block's activations again, from the block's input, instead of keeping those of all
  /// blocks: the same bits, in less memory and in up to 4/3 of the time (Chen et al.: "Training deep nets with
  /// sublinear memory cost", 2016).
  bool recompute = false;

  /// Of `generate`.
  struct Generation {
    std::int64_t length = 256;  ///< tokens to draw
    /// Divides the logits; below 1, likely tokens become likelier. 0 takes the likeliest token, and the lowest of
    /// several equally likely ones.
    double temperature = 1;
    std::uint64_t seed = 1;
  };
};

/// COLL. Makes a decoder-only transformer in the manner of GPT-2 (Radford et al.: "Language models are unsupervised
/// multitask learners", 2019): learned positions, layer norm before each part of a block, GELU in its tanh form, a
/// final layer norm, and output weights shared with the token embedding. Initial weights are those of GPT-2: normal
/// with a standard deviation of 0.02, and of 0.02 / sqrt(2 * layers) where a product is added to a block's input.
///
/// Takes batches of text (TextData::load). Losses are sums over tokens, in nats; for the mean, divide a shard's sum by
/// SampleBatch::counted_labels. `correct` counts tokens. `generate` draws text from it.
///
/// Creates its variables: the embedding's, "block_0/…", "block_1/…", …, "final_norm/…". Before that, InvalidArgument
/// for sizes below 1, heads that do not divide the width, a dtype other than f32 and f64, and f64 under bf16.
/// `strategy` and `kernels` as for make_mlp.
LOCKSTEP_API std::unique_ptr<Model> make_gpt(Strategy& strategy, const GptOptions& options,
                                             std::shared_ptr<const ops::Kernels> kernels, Here here = Here::current());

}  // namespace lockstep::nn
