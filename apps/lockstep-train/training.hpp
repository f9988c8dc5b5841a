// A training run from its options to its result.
//
//   TrainingOptions options;
//   options.data = "fashion-mnist";
//   options.epochs = 2;
//   const TrainingResult result = run_training(runtime.strategy(), "cpu", options);
//   if (runtime.is_chief()) std::puts(to_json(result).c_str());
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <lockstep/base/dtype.hpp>
#include <lockstep/fit/fit.hpp>
#include <lockstep/input/augmentation.hpp>
#include <lockstep/input/schema.hpp>
#include <lockstep/input/shards.hpp>
#include <lockstep/nn/batch_norm.hpp>
#include <lockstep/nn/precision.hpp>
#include <lockstep/ops/kernels.hpp>
#include <lockstep/strategy/strategy.hpp>

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

/// Whether the chief prints progress on stderr.
enum class ShowProgress : std::uint8_t { yes, no };

/// A member that is empty was not given, and has the default that its comment names.
struct TrainingOptions {
  std::filesystem::path data;  ///< images or rows as load_labelled_data takes them, or a text file or a folder of them

  // The model.
  std::optional<ModelKind> model = {};                   ///< mlp
  std::optional<DType> dtype = {};                       ///< of the variables: f32
  std::optional<nn::Precision> precision = {};           ///< full
  std::optional<std::int64_t> classes = {};              ///< not for text; as LabelledOptions has it
  std::optional<std::string> label_column = {};          ///< not for text, as LabelledOptions has it: "label"
  std::optional<double> test_fraction = {};              ///< of a single CSV file, as LabelledOptions has it: 0.1
  std::optional<DataSchema::Task> task = {};             ///< mlp only, as LabelledOptions has it: classes
  std::optional<DataSchema::Scaling> scaling = {};       ///< mlp only, as LabelledOptions has it: none
  std::optional<std::vector<std::int64_t>> hidden = {};  ///< mlp only: {512, 512}
  std::optional<nn::BatchNormKind> batch_norm = {};      ///< convnet only: none
  std::optional<double> dropout = {};                    ///< convnet only: 0
  std::optional<std::int64_t> layers = {};               ///< gpt only, like those below: 4
  std::optional<std::int64_t> heads = {};                ///< a divisor of `embed`: 4
  std::optional<std::int64_t> embed = {};                ///< 128
  std::optional<std::int64_t> context = {};              ///< tokens in a sample: 128
  /// Data are files of tokens below this number (TextOptions). If empty, they are texts.
  std::optional<std::int64_t> vocabulary = {};

  std::uint64_t data_memory_bytes = std::uint64_t{1} << 30;  ///< as LabelledOptions and TextOptions have it
  Augmentation augmentation = {};                            ///< of the images of the training set
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
  /// If automatic: as resolve_shards chooses on the CPU, one per rank on GPUs.
  ShardRequest shards;
  /// Of each rank. With more shards than ranks, each computes whole shards (FitOptions::threads) and no bits change.
  /// With one shard for each rank because there is one rank, they share its products (ops::Threads).
  int threads = 1;
  ops::KernelChoice kernels = ops::KernelChoice::automatic;
  std::optional<std::int64_t> evaluate_every, evaluation_samples;
  std::optional<std::int64_t> attest_every = 100;
  OnDivergence on_divergence = OnDivergence::stop;
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
  /// For `run_prediction`: a file as load_unlabelled_data takes it, or a text with a sample in each line, instead of
  /// `data`. If neither the weights nor `classes` say how many classes the model has, it has 10.
  std::filesystem::path predict;
  /// For `run_prediction`: how many classes to name for each sample, at most those of the model, or how many of the
  /// bytes that may come after a line. If empty, only the likeliest class.
  std::optional<std::int64_t> top = {};
  std::vector<std::string> freeze;         ///< globs; no step updates a variable whose name matches
  InitialWeights initial_weights = {};     ///< unless the training is resumed
  std::filesystem::path exported_weights;  ///< the file for the weights at the end; if empty, none
  ShowProgress progress = ShowProgress::yes;
};

struct TrainingResult {
  int ranks;
  int shards;
  std::string device;
  std::string model;
  FitResult fit;
  std::uint64_t weights_digest;
  /// The bytes asked for, or with a vocabulary the numbers of the tokens: a function of the weights, the seed and the
  /// first token of the data. On the chief only, unless the model has diverged.
  std::string sample;
};

/// Whether GPUs have all the kernels that `model` needs. The CPU has them for every model.
bool has_gpu_kernels(ModelKind model);

/// COLL, blocking. Loads the data once per node, makes the model and trains it, with progress on the chief's stderr if
/// it is shown. `device` goes into the result. A training that is resumed from a checkpoint (CheckpointManager) ends in
/// the bytes of one that never stopped, on any number of ranks that `fit` names. So does its file of metrics, except
/// times.
///
/// Weights that this function saved describe their model and its data. Empty options of the model are then taken from
/// the checkpoint that is resumed, or from the initial weights, and the columns of a table are found by their names.
///
/// If a rank asks for an early end (Strategy::request_stop), `fit.stopped` is true, the last step is saved like any
/// that is due, no weights are exported, and there is no sample.
///
/// ConfigError on a rank with a wrong option or wrong data, PeerError on the others; ConfigError if an option
/// contradicts the checkpoint; MismatchError if the ranks loaded different data or their kernels differ
/// (Kernels::fingerprint); ConfigError if the training begins anew and the folder of checkpoints holds some;
/// CheckpointError if none can be resumed, or written, and for weights that cannot be read, do not match, or cannot be
/// written.
TrainingResult run_training(Strategy& strategy, const std::string& device, const TrainingOptions& options);

/// The result of `run_evaluation`.
struct EvaluationResult {
  int ranks;
  int shards;
  std::string device;
  std::string model;
  std::filesystem::path weights;  ///< their file or checkpoint
  std::int64_t steps;             ///< after which they were saved; 0 if unknown
  EvaluationReport evaluation;
  std::uint64_t weights_digest;
  std::string sample;  ///< as TrainingResult has it
};

/// COLL, blocking. Restores the weights that `options` name, and evaluates them as a training does. Of the other
/// options it uses only those of data, model and device, `evaluation_samples`, `exported_weights` and `sample`.
///
/// Empty options of the model are taken from the weights. Throws as run_training does; data, seed and optimizer may
/// differ from those of the checkpoint. ConfigError if the options name no weights, CheckpointError if there are none.
EvaluationResult run_evaluation(Strategy& strategy, const std::string& device, const TrainingOptions& options);

/// A model's prediction for one sample.
struct Prediction {
  struct Class {
    std::int64_t number = 0;
    std::string label = {};  ///< its name in the data; the number, if classes are numbers
    double probability = 0;
  };
  std::int64_t index;                    ///< of the sample, from 0
  Class likeliest = {};                  ///< the lowest number of several
  std::vector<Class> top = {};           ///< TrainingOptions::top classes, the likeliest first
  std::optional<std::string> text = {};  ///< the bytes that a model of text writes instead
  std::optional<double> value = {};      ///< the number that a regression predicts instead, in the label's own unit
};

/// COLL, blocking. Restores the weights that `options` name, and predicts each sample of TrainingOptions::predict. The
/// predictions are on the chief, in the order of the samples, and the same on any number of ranks; the other ranks
/// return none. Of the other options it uses only those of model and device, and for text `sample` and `seed`.
///
/// Throws as run_evaluation does, and InvalidArgument if a model of text has weights that are not finite.
std::vector<Prediction> run_prediction(Strategy& strategy, const TrainingOptions& options);

/// `{"ranks","shards","device","model","steps","samples","seconds","samples_per_second","train_loss","eval_loss",
/// "eval_accuracy","weights_digest"}` on one line, with "bits_per_byte" after "eval_loss" for a model of text, and
/// "eval_r2" and "eval_mean_absolute_error" in the place of the accuracy for one that predicts numbers.
std::string to_json(const TrainingResult& result);

/// `{"ranks","shards","device","model","weights","steps","eval_samples","seconds","eval_loss","eval_accuracy",
/// "weights_digest"}` on one line, with "bits_per_byte" as above, and without "steps" if they are not known.
std::string to_json(const EvaluationResult& result);

/// `{"index","class","label","probability"}` on one line, `{"index","value"}` for a regression, or `{"index","text"}`
/// with the text as `printable` shows it; with "top", an array of classes as in the former, if it was asked for. The
/// class of a byte is its number.
std::string to_json(const Prediction& prediction);

}  // namespace lockstep
