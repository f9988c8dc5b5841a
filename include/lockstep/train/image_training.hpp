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

enum class ModelKind : std::uint8_t { mlp, convnet };

enum class OptimizerKind : std::uint8_t { sgd, momentum, adamw };

/// What the learning rate does behind its warm-up: stay, or fall to 0 at the end of the run.
enum class ScheduleKind : std::uint8_t { constant, cosine };

struct ImageTrainingOptions {
  std::filesystem::path data;
  std::int64_t classes = 10;
  ModelKind model = ModelKind::mlp;
  std::vector<std::int64_t> hidden = {512, 512};           ///< of the mlp
  nn::BatchNormKind batch_norm = nn::BatchNormKind::none;  ///< of the convnet, as its rate of dropout
  double dropout = 0;
  std::int64_t global_batch = 256;
  /// At most one of the two; 5 epochs where there is none.
  std::optional<std::int64_t> epochs, steps;
  OptimizerKind optimizer = OptimizerKind::momentum;
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
  /// Where the chief writes metrics; empty: nowhere.
  std::filesystem::path metrics;
};

struct ImageTrainingResult {
  int ranks;
  int shards;
  std::string device;
  std::string model;
  FitResult fit;
  std::uint64_t weights_digest;
};

/// COLL, blocking. Loads the data, makes the model and trains it, with progress on the chief's stderr. ConfigError on
/// every rank for what is wrong with the options or the data on any; MismatchError where ranks loaded different data.
ImageTrainingResult train_on_images(Strategy& strategy, const std::string& device, const ImageTrainingOptions& options);

/// LOCAL. xxHash64 over the little-endian bytes of the variables, in the order given.
std::uint64_t weights_digest(const VariableList& variables);

/// `{"ranks","shards","device","model","steps","samples","seconds","samples_per_second","train_loss","eval_loss",
/// "eval_accuracy","weights_digest"}` on one line.
std::string to_json(const ImageTrainingResult& result);

}  // namespace lockstep
