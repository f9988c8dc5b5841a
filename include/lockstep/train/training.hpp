// A training run from its options to its result: what lockstep-train does, as a library.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <lockstep/base/dtype.hpp>
#include <lockstep/input/shards.hpp>
#include <lockstep/nn/batch_norm.hpp>
#include <lockstep/ops/kernels.hpp>
#include <lockstep/strategy/strategy.hpp>
#include <lockstep/train/fit.hpp>

namespace lockstep {

/// The first two of images, the last of text.
enum class ModelKind : std::uint8_t { mlp, convnet, gpt };

enum class OptimizerKind : std::uint8_t { sgd, momentum, adamw };

/// What the learning rate does behind its warm-up: stay, or fall to 0 at the end of the run.
enum class ScheduleKind : std::uint8_t { constant, cosine };

struct TrainingOptions {
  std::filesystem::path data;  ///< a folder of images, or a file of text
  ModelKind model = ModelKind::mlp;
  std::int64_t classes = 10;                               ///< of images
  std::vector<std::int64_t> hidden = {512, 512};           ///< of the mlp
  nn::BatchNormKind batch_norm = nn::BatchNormKind::none;  ///< of the convnet, as its rate of dropout
  double dropout = 0;
  std::int64_t layers = 4;  ///< of the gpt, as all that follow
  std::int64_t heads = 4;   ///< a divisor of `embed`
  std::int64_t embed = 128;
  std::int64_t context = 128;  ///< bytes of a sample
  std::int64_t sample = 0;     ///< bytes that the trained model is to write

  /// At most one of the two; 5 epochs where there is none, 1 of text.
  std::optional<std::int64_t> epochs, steps;
  /// 256 where it is not given, 16 of text.
  std::optional<std::int64_t> global_batch;
  /// Momentum where it is not given, AdamW of text.
  std::optional<OptimizerKind> optimizer;
  /// The peak of the schedule; 0.1 where it is not given, 0.001 for AdamW.
  std::optional<double> learning_rate;
  double momentum = 0.9;
  ScheduleKind schedule = ScheduleKind::constant;
  std::int64_t warmup_steps = 0;  ///< fewer than the run has
  double weight_decay = 0;
  std::optional<double> clip_norm;
  /// Micro-batches that each shard of a batch is computed in: at most as many as it has samples.
  std::int64_t accumulate = 1;
  std::uint64_t seed = 1;
  /// Asked for nothing: as resolve_shards says on the CPU, one a rank on GPUs.
  ShardRequest shards;
  int threads = 1;
  ops::KernelChoice kernels = ops::KernelChoice::automatic;
  DType dtype = DType::f32;
  std::optional<std::int64_t> evaluate_every;
  std::optional<std::int64_t> attest_every = 100;
  /// Where the chief writes metrics, and beside them what an attestation finds; empty: nowhere.
  std::filesystem::path metrics;
};

struct TrainingResult {
  int ranks;
  int shards;
  std::string device;
  std::string model;
  FitResult fit;
  std::uint64_t weights_digest;
  /// On the chief, of a model that has not diverged: the bytes asked for. A function of the weights and the seed.
  std::string sample;
};

/// Whether GPUs have all kernels that `model` needs. The CPU has them for every model.
bool has_gpu_kernels(ModelKind model);

/// COLL, blocking. Loads the data, makes the model and trains it, with progress on the chief's stderr. ConfigError on
/// every rank for what is wrong with the options or the data on any; MismatchError where ranks loaded different data.
TrainingResult run_training(Strategy& strategy, const std::string& device, const TrainingOptions& options);

/// LOCAL. xxHash64 over the little-endian bytes of the variables, in the order given.
std::uint64_t weights_digest(const VariableList& variables);

/// `{"ranks","shards","device","model","steps","samples","seconds","samples_per_second","train_loss","eval_loss",
/// "eval_accuracy","weights_digest"}` on one line, with "bits_per_byte" behind "eval_loss" for a model of text.
std::string to_json(const TrainingResult& result);

}  // namespace lockstep
