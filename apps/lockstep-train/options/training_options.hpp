// What a run of lockstep-train is asked to do.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <lockstep/core/base/dtype.hpp>
#include <lockstep/models/fit/fit.hpp>
#include <lockstep/models/input/augmentation.hpp>
#include <lockstep/models/input/schema.hpp>
#include <lockstep/models/nn/models.hpp>
#include <lockstep/models/ops/kernels.hpp>
#include <lockstep/sync/strategy/strategy.hpp>

#include "core/order/shard_request.hpp"

namespace lockstep {

/// mlp trains on images or rows of numbers, convnet on images, gpt on text.
enum class ModelKind : std::uint8_t { mlp, convnet, gpt };

enum class OptimizerKind : std::uint8_t { sgd, momentum, adamw };

/// How the learning rate changes after warm-up: constant, or cosine decay to 0 at the end of the run.
enum class ScheduleKind : std::uint8_t { constant, cosine };

/// Which checkpoint a training run continues from, if any.
struct Resume {
  enum class From : std::uint8_t { none, newest, path };
  /// An option that may differ from the checkpoint. The training keeps the new value. `schedule` and `steps` also let
  /// the length of a cosine decay differ.
  enum class Override : std::uint8_t { learning_rate, schedule, warmup_steps, steps };
  From from = From::none;
  std::filesystem::path path = {};  ///< a checkpoint
  std::vector<Override> overrides = {};
};

/// Initial weights of a model, instead of random ones.
struct InitialWeights {
  /// Whether all variables and all entries of the file must match by name, type and shape, or only some.
  enum class Match : std::uint8_t { all, some };
  std::filesystem::path file = {};  ///< as load_weights takes it; if empty, there are none
  Match match = Match::all;
};

/// Whether the chief prints progress on stderr, for a person or as JSON.
enum class ShowProgress : std::uint8_t { yes, no, json };

enum class GptPreset : std::uint8_t { gpt2 };

/// A member that is empty was not given, and has the default that its comment names.
struct TrainingOptions {
  std::filesystem::path data;  ///< images or rows as LabelledData::load takes them, or a text file or a folder of them

  // The model.
  std::optional<ModelKind> model = {};                   ///< mlp
  std::optional<DType> dtype = {};                       ///< of the variables: f32
  std::optional<nn::Model::Precision> precision = {};    ///< full
  std::optional<std::int64_t> classes = {};              ///< not for text; as LabelledData::Options has it
  std::optional<std::string> label_column = {};          ///< not for text, as LabelledData::Options has it: "label"
  std::optional<double> test_fraction = {};              ///< of a single CSV file, as LabelledData::Options has it: 0.1
  std::optional<DataSchema::Task> task = {};             ///< mlp only, as LabelledData::Options has it: classes
  std::optional<DataSchema::Scaling> scaling = {};       ///< mlp only, as LabelledData::Options has it: none
  std::optional<std::vector<std::int64_t>> hidden = {};  ///< mlp only: {512, 512}
  std::optional<nn::ConvnetOptions::BatchNorm> batch_norm = {};  ///< convnet only: none
  std::optional<double> dropout = {};                            ///< convnet only: 0
  std::optional<GptPreset> preset = {};                          ///< gpt only: where the sizes below are from, if any
  std::optional<std::int64_t> layers = {};                       ///< gpt only, like those below: 4
  std::optional<std::int64_t> heads = {};                        ///< a divisor of `embed`: 4
  std::optional<std::int64_t> embed = {};                        ///< 128
  std::optional<std::int64_t> context = {};                      ///< tokens in a sample: 128
  /// Data are files of tokens below this number (TextData::Options). If empty, they are texts.
  std::optional<std::int64_t> vocabulary = {};
  bool binary = false;  ///< gpt only: the data are files of any bytes (TextData::Options)
  bool recompute = false;

  std::uint64_t data_memory_bytes = std::uint64_t{1} << 30;  ///< as LabelledData::Options and TextData::Options have it
  AugmentedSamples::Augmentation augmentation = {};          ///< of the images of the training set
  std::int64_t sample = 0;  ///< tokens that the trained model writes; 64 after each line of `predict`, if 0

  /// At most one of the two. If both are empty: 5 epochs, or 1 for text.
  std::optional<std::int64_t> epochs, steps;
  /// If empty: 256, or 16 for text.
  std::optional<std::int64_t> global_batch;
  /// If empty: momentum, or AdamW for text.
  std::optional<OptimizerKind> optimizer;
  /// Peak of the schedule. If empty: 0.03 for an mlp with momentum, 0.01 for other models with momentum, 0.1 for sgd,
  /// 0.001 for AdamW.
  std::optional<double> learning_rate;
  double momentum = 0.9;
  ScheduleKind schedule = ScheduleKind::constant;
  std::int64_t warmup_steps = 0;  ///< fewer than the run has steps
  double weight_decay = 0;
  std::optional<double> clip_norm;
  /// Micro-batches per shard; at most the samples in the largest shard.
  std::int64_t accumulate = 1;
  int prefetch = 0;  ///< batches that are loaded ahead of their steps
  std::uint64_t seed = 1;
  /// If automatic: as ShardRequest::resolve chooses on the CPU, one per rank on GPUs.
  ShardRequest shards;
  /// Of each rank. With more shards than ranks, each computes whole shards (FitOptions::threads) and no bits change.
  /// With one shard for each rank because there is one rank, they share its products (ops::Kernels::Threads).
  int threads = 1;
  ops::Kernels::Choice kernels = ops::Kernels::Choice::automatic;
  std::optional<std::int64_t> evaluate_every, evaluation_samples;
  std::optional<std::int64_t> attest_every = 100;
  int attest_first = 2;
  std::optional<std::int64_t> audit_every = {};
  /// Steps between entries of the ledger. If empty, every 100th step where there is a folder of the run; 0: none.
  std::optional<std::int64_t> ledger_every = {};
  FitOptions::OnDivergence on_divergence = FitOptions::OnDivergence::stop;
  /// Where the chief writes metrics and, beside them, the findings of an attestation. If empty, nowhere.
  std::filesystem::path metrics;
  /// The folder of checkpoints. If empty, none is written.
  std::filesystem::path checkpoints;
  /// Steps between checkpoints. If empty, one at the end of each epoch. The last step always writes one.
  std::optional<std::int64_t> checkpoint_every;
  std::int64_t keep_checkpoints = 3;  ///< how many of the newest stay
  bool keep_best_checkpoint = false;  ///< also saves after an evaluation with the lowest loss so far, and keeps that
  bool checkpoints_optional = false;  ///< a checkpoint that cannot be written is a warning
  Resume resume = {};
  /// For `Trainer::predict`: a file as LabelledData::load_unlabelled takes it, or a text with a sample in each line,
  /// instead of `data`. If neither the weights nor `classes` say how many classes the model has, it has 10.
  std::filesystem::path predict;
  /// For `Trainer::predict`: how many classes to name for each sample, at most those of the model, or how many of the
  /// bytes that may come after a line. If empty, only the likeliest class.
  std::optional<std::int64_t> top = {};
  std::vector<std::string> freeze;         ///< globs; no step updates a variable whose name matches
  InitialWeights initial_weights = {};     ///< unless the training is resumed
  std::filesystem::path exported_weights;  ///< the file for the weights at the end; if empty, none
  ShowProgress progress = ShowProgress::yes;
  /// The folder of the run. If empty, there is none. A command line puts the files above into it.
  std::filesystem::path run_folder = {};
  bool trace = false;        ///< in `run_folder`
  bool tensorboard = false;  ///< writes an event file, in the same
  /// The options of a command line, without dashes, as text; that of a flag is empty.
  std::map<std::string, std::string> given = {};
};

/// Fills in the defaults: all options have a value then, but for the number of classes, which the data decide, and the
/// vocabulary, which texts do not have.
TrainingOptions with_defaults(TrainingOptions options);

/// ConfigError for an option that was given and is for other models.
void require_options_of(ModelKind model, const TrainingOptions& options);

}  // namespace lockstep
