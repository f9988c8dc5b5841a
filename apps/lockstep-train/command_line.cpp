#include "apps/lockstep-train/command_line.hpp"

#include <algorithm>
#include <initializer_list>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "apps/options/option_parser.hpp"
#include "apps/options/option_values.hpp"

namespace lockstep {
namespace {

/// The usual recipe for CIFAR shifts by up to 4 pixels.
Augmentation parse_augmentation(const std::string& option, const std::string& text) {
  if (text == "flip") return {.flip = true};
  if (text == "crop") return {.crop = 4};
  if (text == "flip,crop" || text == "crop,flip") return {.flip = true, .crop = 4};
  throw ConfigError{fmt::format("{} {}: expected flip, crop or flip,crop", option, shown(text))};
}

constexpr std::initializer_list<std::pair<const char*, ModelKind>> models{
    {"mlp", ModelKind::mlp}, {"convnet", ModelKind::convnet}, {"gpt", ModelKind::gpt}};

/// "mlp or convnet".
std::string names_of(const std::vector<ModelKind>& kinds) {
  std::string names;
  for (const auto& [name, kind] : models)
    if (std::ranges::find(kinds, kind) != kinds.end()) names += (names.empty() ? "" : " or ") + std::string{name};
  return names;
}

/// The given options that are only for some models.
class ModelOptions {
 public:
  void add(const std::string& option, std::vector<ModelKind> kinds) { options_.emplace_back(option, std::move(kinds)); }

  /// ConfigError for an option that is not for `model`.
  void require(ModelKind model) const {
    for (const auto& [option, kinds] : options_)
      if (std::ranges::find(kinds, model) == kinds.end())
        throw ConfigError{fmt::format("{}: expected only with --model {}", option, names_of(kinds))};
  }

 private:
  std::vector<std::pair<std::string, std::vector<ModelKind>>> options_;
};

/// Returns `parse()`. Puts the option's name before the text of a ConfigError, since the layers know nothing of
/// options.
template <class Parse>
auto parse_named(const std::string& option, Parse&& parse) {
  try {
    return parse();
  } catch (const ConfigError& error) {
    throw ConfigError{fmt::format("{}: {}", option, error.what())};
  }
}

}  // namespace

CommandLine parse_command_line(int argc, const char* const* argv) {
  CommandLine line;
  std::optional<log::Level> log_level;
  TrainingOptions& training = line.training;
  ModelOptions of_models;
  std::vector<std::string> of_training;  // given options that ask for something that only a training does
  OptionParser parser{
      "lockstep-train",
      "Trains a model on several processes in lockstep, one replica each.\n\n"
      "  mpirun -n 2 lockstep-train --data /usr/share/datasets/fashion-mnist\n"
      "  mpirun -n 4 lockstep-train --cluster-spec cluster.json --data DIR --epochs 10\n"
      "  mpirun -n 2 lockstep-train --model gpt --data book.txt --sample 500\n\n"
      "The last line on stdout is the result, one JSON object; the text of --sample comes before it, and with "
      "--predict "
      "there is a line for each sample instead. Everything else goes to stderr.\n"
      "SIGUSR1, to mpirun or to any rank, saves a checkpoint and ends the training after the step under way.\n"
      "Exit codes: 0 done, 2 wrong input, 3 the ranks disagreed, 4 a rank failed, 5 a rank stalled, 6 the replicas "
      "differed, 7 a checkpoint could not be written or read, 8 the training diverged, 75 stopped by SIGUSR1, 1 any "
      "other failure."};

  parser.group("Data and model");
  parser.option("--data", "PATH",
                "Folder of IDX files (train-images-idx3-ubyte and so on), of CIFAR-10 or CIFAR-100 in the binary "
                "version, of x_train.npy, y_train.npy, x_test.npy and y_test.npy, or of train.csv and test.csv; or one "
                "CSV file, whose last tenth is the test set; plain or .gz. For gpt a text file, plain or .gz, or a "
                "folder of them, whose last tenth is the test set (required, but not for --predict)",
                [&](const std::string&, const std::string& text) { training.data = text; });
  parser.option("--classes", "N",
                "Number of classes; labels are 0 to N-1; not for gpt (default: what the data say, 10 for IDX)",
                [&](const std::string& option, const std::string& text) {
                  training.classes = parse_count(option, text, 1, 1 << 16);
                  of_models.add(option, {ModelKind::mlp, ModelKind::convnet});
                });
  parser.option("--label-column", "NAME", "Column of a CSV file that holds the class, for mlp only (default label)",
                [&](const std::string& option, const std::string& text) {
                  training.label_column = text;
                  of_models.add(option, {ModelKind::mlp});
                });
  parser.option("--data-memory", "SIZE",
                "Memory for the samples on each rank, such as 64K, 1M or 1G: files beyond it are read batch by batch; "
                "token files always are (default 1G)",
                [&](const std::string& option, const std::string& text) {
                  training.data_memory_bytes =
                      static_cast<std::uint64_t>(parse_bytes(option, text, std::numeric_limits<std::int64_t>::max()));
                });
  parser.option("--augment", "flip,crop",
                "Change the images of the training set at random, in another way in each epoch: mirror them, shift "
                "them by up to 4 pixels, or both; for images only (default: as they are)",
                [&](const std::string& option, const std::string& text) {
                  training.augmentation = parse_augmentation(option, text);
                  of_models.add(option, {ModelKind::mlp, ModelKind::convnet});
                });
  parser.option("--model", "mlp|convnet|gpt",
                "For images, a multilayer perceptron, or a network of two convolutions and two dense layers, both with "
                "ReLU; for text, a byte-level transformer (default mlp)",
                [&](const std::string& option, const std::string& text) {
                  training.model = parse_choice<ModelKind>(option, text, models);
                });
  parser.option("--hidden", "N,N,...", "Sizes of the hidden layers, for mlp only (default 512,512)",
                [&](const std::string& option, const std::string& text) {
                  training.hidden = parse_sizes(option, text);
                  of_models.add(option, {ModelKind::mlp});
                });
  parser.flag("--batch-norm", "Normalise after each convolution, each shard by itself; for convnet only", [&] {
    if (training.batch_norm == nn::BatchNormKind::none) training.batch_norm = nn::BatchNormKind::per_shard;
    of_models.add("--batch-norm", {ModelKind::convnet});
  });
  parser.flag("--sync-batch-norm", "The same, but all shards of all ranks together; for convnet only", [&] {
    training.batch_norm = nn::BatchNormKind::whole_batch;
    of_models.add("--sync-batch-norm", {ModelKind::convnet});
  });
  parser.option("--dropout", "P", "Dropout rate before each dense layer, for convnet only (default 0)",
                [&](const std::string& option, const std::string& text) {
                  training.dropout = parse_fraction(option, text);
                  of_models.add(option, {ModelKind::convnet});
                });
  const auto size_of_gpt = [&](const char* name, const std::string& help, std::int64_t& size, std::int64_t largest) {
    parser.option(name, "N", fmt::format("{}; for gpt only (default {})", help, size),
                  [&, largest](const std::string& option, const std::string& text) {
                    size = parse_count(option, text, 1, largest);
                    of_models.add(option, {ModelKind::gpt});
                  });
  };
  size_of_gpt("--layers", "Transformer blocks", training.layers, 1024);
  size_of_gpt("--heads", "Attention heads of each block", training.heads, 1 << 20);
  size_of_gpt("--embed", "Length of the vector of a token, a multiple of --heads", training.embed, 1 << 20);
  size_of_gpt("--context", "Tokens in a sample, the most that a token is predicted from", training.context, 1 << 20);
  parser.option("--vocabulary", "N",
                "The data are files of 16-bit tokens below N, as llm.c writes them; for gpt only (default: the tokens "
                "are the bytes of texts)",
                [&](const std::string& option, const std::string& text) {
                  training.vocabulary = parse_count(option, text, 1, 1 << 16);
                  of_models.add(option, {ModelKind::gpt});
                });
  parser.option("--dtype", "f32|f64", "Type of weights and arithmetic (default f32)",
                [&](const std::string& option, const std::string& text) {
                  training.dtype = parse_choice<DType>(option, text, {{"f32", DType::f32}, {"f64", DType::f64}});
                });

  parser.option("--precision", "full|bf16",
                "full: everything is of --dtype (default); bf16: activations and products are of bf16, and the weights "
                "stay f32",
                [&](const std::string& option, const std::string& text) {
                  training.precision = parse_choice<nn::Precision>(
                      option, text, {{"full", nn::Precision::full}, {"bf16", nn::Precision::bf16}});
                });

  parser.group("Training");
  parser.option("--epochs", "N", "Passes over the training set (default 5, for gpt 1)",
                [&](const std::string& option, const std::string& text) {
                  training.epochs = parse_count(option, text);
                  of_training.push_back(option);
                });
  parser.option("--steps", "N", "Steps to train, instead of epochs; may end within an epoch",
                [&](const std::string& option, const std::string& text) {
                  training.steps = parse_count(option, text);
                  of_training.push_back(option);
                });
  parser.option(
      "--global-batch", "N", "Samples per step over all ranks; any number from 1 (default 256, for gpt 16)",
      [&](const std::string& option, const std::string& text) { training.global_batch = parse_count(option, text); });
  parser.option(
      "--accumulate", "K",
      "Micro-batches per shard, computed one after the other, so that activations take 1/K of the memory (default 1)",
      [&](const std::string& option, const std::string& text) { training.accumulate = parse_count(option, text); });
  parser.option("--prefetch", "N", "Batches that a thread of each rank loads ahead of their steps (default 0)",
                [&](const std::string& option, const std::string& text) {
                  training.prefetch = static_cast<int>(parse_count(option, text, 0, 1024));
                });
  parser.option(
      "--optimizer", "sgd|momentum|adamw", "Optimizer (default momentum, for gpt adamw)",
      [&](const std::string& option, const std::string& text) {
        training.optimizer = parse_choice<OptimizerKind>(
            option, text,
            {{"sgd", OptimizerKind::sgd}, {"momentum", OptimizerKind::momentum}, {"adamw", OptimizerKind::adamw}});
      });
  parser.option(
      "--learning-rate", "X",
      "Learning rate, the peak of the schedule (default 0.03 for mlp and 0.01 for other models with momentum, 0.001 "
      "for adamw, 0.1 for sgd)",
      [&](const std::string& option, const std::string& text) {
        training.learning_rate = parse_positive(option, text);
      });
  parser.option(
      "--momentum", "X", "Momentum of --optimizer momentum, from 0 to below 1 (default 0.9)",
      [&](const std::string& option, const std::string& text) { training.momentum = parse_fraction(option, text); });
  parser.option("--schedule", "constant|cosine",
                "How the learning rate changes after warm-up: constant, or cosine decay to 0 at the end of the run "
                "(default constant)",
                [&](const std::string& option, const std::string& text) {
                  training.schedule = parse_choice<ScheduleKind>(
                      option, text, {{"constant", ScheduleKind::constant}, {"cosine", ScheduleKind::cosine}});
                });
  parser.option("--warmup-steps", "N", "Steps in which the learning rate rises to its peak (default 0)",
                [&](const std::string& option, const std::string& text) {
                  training.warmup_steps = parse_count(option, text, 0);
                });
  parser.option("--weight-decay", "X",
                "Weight decay, except of biases: added to the gradient, or decoupled from it for adamw (default 0)",
                [&](const std::string& option, const std::string& text) {
                  training.weight_decay = parse_not_negative(option, text);
                });
  parser.option(
      "--clip-norm", "X", "Scale a step's mean gradient down to this norm if it is longer (default: never)",
      [&](const std::string& option, const std::string& text) { training.clip_norm = parse_positive(option, text); });
  parser.option("--seed", "N",
                "Seed of the initial weights, the order of the samples, dropout, --augment and --sample (default 1)",
                [&](const std::string& option, const std::string& text) {
                  training.seed =
                      parse_number<std::uint64_t>(option, text, 0, "a whole number from 0 to 18446744073709551615");
                });
  parser.option("--eval-every", "K", "Steps between evaluations (default: evaluate after each epoch)",
                [&](const std::string& option, const std::string& text) {
                  training.evaluate_every = parse_count(option, text);
                  of_training.push_back(option);
                });
  parser.option("--eval-samples", "N", "Samples of an evaluation, the first of the test set (default: all of them)",
                [&](const std::string& option, const std::string& text) {
                  training.evaluation_samples = parse_count(option, text);
                });
  parser.option(
      "--attest-every", "K",
      "Steps between attestations, in which the ranks compare digests of what they hold; the last step attests too; "
      "0: never (default 100)",
      [&](const std::string& option, const std::string& text) {
        const std::int64_t steps = parse_count(option, text, 0);
        training.attest_every = steps == 0 ? std::nullopt : std::optional{steps};
      });

  parser.option("--on-divergence", "stop|continue",
                "What to do when a loss is no finite number: end the run with exit code 8, or go on (default stop)",
                [&](const std::string& option, const std::string& text) {
                  training.on_divergence = parse_choice<OnDivergence>(
                      option, text, {{"stop", OnDivergence::stop}, {"continue", OnDivergence::proceed}});
                });

  parser.group("Ranks and devices");
  parser.option("--cluster-spec", "FILE",
                "JSON that says which task each rank is (default: TF_CONFIG, or one task per rank if that is not set)",
                [&](const std::string& option, const std::string& text) {
                  line.runtime.cluster_spec = parse_file_name(option, text);
                });
  parser.option("--device", "auto|cpu|cuda", "What each rank computes on (default auto)",
                [&](const std::string& option, const std::string& text) {
                  parse_device_request(text, option);
                  line.runtime.device = text;
                });
  parser.option(
      "--devices", "LIST",
      "Devices of the ranks of each node, in order, such as 0,2 or GPU-<UUID>,GPU:1; or of all tasks, such as "
      "/job:worker/task:0/device:GPU:2,... (default: the first GPUs of the node)",
      [&](const std::string& option, const std::string& text) {
        (void)DeviceList::parse(text, option);
        line.runtime.devices = text;
      });
  parser.option(
      "--shards", "V|ranks",
      "Slices of every batch. The result depends on them, not on the number of ranks. 'ranks' means one per rank, the "
      "fastest (default 8, on GPUs 'ranks')",
      [&](const std::string&, const std::string& text) {
        training.shards = parse_shards(text);
        // Whoever asks for a number wants results that do not depend on the number of ranks.
        if (training.shards.kind == ShardRequest::Kind::count)
          line.runtime.reductions.kind = ReductionKind::fixed_order;
      });
  parser.option("--compress-gradients", "f16|bf16",
                "Send f32 gradients between nodes in 16 bits. The result then depends on which ranks share a node",
                [&](const std::string& option, const std::string& text) {
                  line.runtime.reductions.gradient_compression =
                      parse_choice<DType>(option, text, {{"f16", DType::f16}, {"bf16", DType::bf16}});
                  of_training.push_back(option);
                });
  parser.flag("--allow-shared-gpu", "For tests: let ranks share GPUs if a node has too few",
              [&] { line.runtime.allow_shared_gpu = true; });
  parser.option("--threads", "T", "Threads per rank (default 1)",
                [&](const std::string& option, const std::string& text) {
                  training.threads = static_cast<int>(parse_count(option, text, 1, 1024));
                });
  parser.option("--kernels", "auto|reference|onednn|cuda", "Kernels to compute with (default auto)",
                [&](const std::string& option, const std::string& text) {
                  training.kernels = parse_named(option, [&] { return ops::parse_kernel_choice(text); });
                });
  parser.option("--stall-timeout", "SECONDS", "How long a rank may be silent or late before the job ends (default 60)",
                [&](const std::string& option, const std::string& text) {
                  line.runtime.stall_timeout = std::chrono::duration<double>{parse_positive(option, text)};
                  if (line.runtime.stall_timeout > std::chrono::hours{24 * 365})
                    throw ConfigError{fmt::format("{} {}: expected at most a year (31536000)", option, text)};
                });

  parser.group("Checkpoints");
  bool of_folder = false;  // whether an option needs --checkpoint-dir
  parser.option(
      "--checkpoint-dir", "DIR",
      "Save the training in DIR/step-N after each epoch and at the end; DIR must not hold checkpoints, except "
      "with --resume",
      [&](const std::string& option, const std::string& text) {
        training.checkpoints = parse_file_name(option, text);
      });
  parser.option("--checkpoint-every", "K", "Steps between checkpoints, instead of an epoch",
                [&](const std::string& option, const std::string& text) {
                  training.checkpoint_every = parse_count(option, text);
                  of_folder = true;
                  of_training.push_back(option);
                });
  parser.option("--keep", "K", fmt::format("How many of the newest stay (default {})", training.keep_checkpoints),
                [&](const std::string& option, const std::string& text) {
                  training.keep_checkpoints = parse_count(option, text);
                  of_folder = true;
                  of_training.push_back(option);
                });
  parser.flag("--keep-best",
              "Save the training also after an evaluation with the lowest loss so far, and keep that checkpoint", [&] {
                training.keep_best_checkpoint = true;
                of_folder = true;
                of_training.push_back("--keep-best");
              });
  parser.flag("--checkpoint-optional", "Go on with a warning when a checkpoint cannot be written", [&] {
    training.checkpoints_optional = true;
    of_folder = true;
    of_training.push_back("--checkpoint-optional");
  });
  parser.option(
      "--resume", "auto|DIR|none",
      "Go on from the newest complete checkpoint in --checkpoint-dir, from the beginning if there is none; or "
      "from the checkpoint in the folder DIR; or from the beginning (default none)",
      [&](const std::string& option, const std::string& text) {
        if (text == "auto")
          training.resume = {Resume::From::newest, {}};
        else if (text == "none")
          training.resume = {};
        else
          training.resume = {Resume::From::path, parse_file_name(option, text)};
      });

  parser.group("Weights");
  parser.option("--init-from", "FILE",
                "Begin with the weights in FILE, a safetensors file or a checkpoint, instead of random ones. With "
                "--resume auto, only where there is no checkpoint",
                [&](const std::string& option, const std::string& text) {
                  training.initial_weights.file = parse_file_name(option, text);
                });
  parser.flag("--partial", "Take what matches by name, type and shape from --init-from, and say what does not", [&] {
    training.initial_weights.match = InitialWeights::Match::some;
    of_training.push_back("--partial");
  });
  parser.repeatable("--freeze", "PATTERN",
                    "Do not update the variables with names that PATTERN matches, such as 'dense_0*'; may be repeated",
                    [&](const std::string& option, const std::string& text) {
                      if (text.empty())
                        throw ConfigError{fmt::format("{} '': expected a pattern, such as 'dense_0*'", option)};
                      training.freeze.push_back(text);
                      of_training.push_back(option);
                    });
  parser.option("--export", "FILE",
                "Write the weights at the end to FILE, in the safetensors format, which replaces what was there",
                [&](const std::string& option, const std::string& text) {
                  training.exported_weights = parse_file_name(option, text);
                });

  parser.group("Instead of training");
  bool evaluates = false;
  parser.flag("--eval-only",
              "Evaluate the weights of --resume or --init-from on the test set, and train and save nothing",
              [&] { evaluates = true; });
  parser.option(
      "--predict", "FILE",
      "Print a JSON line for each sample of FILE, by the weights of --resume or --init-from: the class of each "
      "image or row in an IDX, .npy or CSV file; for gpt, what it writes after each line of a text. Needs no --data",
      [&](const std::string& option, const std::string& text) { training.predict = parse_file_name(option, text); });

  parser.group("Output");
  parser.option(
      "--metrics", "FILE",
      "Write loss, learning rate and gradient norm of each step, and each evaluation, to FILE, one JSON object per "
      "line",
      [&](const std::string& option, const std::string& text) {
        training.metrics = parse_file_name(option, text);
        of_training.push_back(option);
      });
  parser.option("--sample", "N",
                "Bytes, or tokens, that the trained model writes to stdout before the result, or after each line of "
                "--predict (default 64); for gpt only",
                [&](const std::string& option, const std::string& text) {
                  training.sample = parse_count(option, text, 1, 1 << 20);
                  of_models.add(option, {ModelKind::gpt});
                });
  parser.option("--log-level", "LEVEL", "trace, debug, info, warning, error or off (default info)",
                [&](const std::string& option, const std::string& text) {
                  log_level = parse_named(option, [&] { return log::parse_level(text); });
                });

  parser.flag("--quiet", "No progress, and a log of warnings and errors unless --log-level is given",
              [&] { training.progress = ShowProgress::no; });

  parser.known_elsewhere("--learning-rate", {"lr"});
  parser.known_elsewhere("--global-batch", {"batch", "batch-size", "batchsize"});
  parser.known_elsewhere("--prefetch", {"workers", "num-workers"});
  parser.known_elsewhere("--device", {"gpu", "gpus"});
  parser.known_elsewhere("--checkpoint-dir", {"output", "output-dir"});

  line.answer = parser.parse(argc, argv);
  if (line.answer) return line;
  line.log_level = log_level.value_or(training.progress == ShowProgress::yes ? log::Level::info : log::Level::warning);
  const bool predicts = !training.predict.empty();
  if (evaluates && predicts)
    throw ConfigError{"--eval-only and --predict were both given: expected at most one of the two"};
  line.purpose = evaluates ? Purpose::evaluation : predicts ? Purpose::prediction : Purpose::training;
  if (training.data.empty() && !predicts)
    throw ConfigError{
        "--data is missing: expected a folder of images or a CSV file, or for gpt a text file, plain or .gz; "
        "lockstep-train --help lists the options"};
  if (training.precision == nn::Precision::bf16 && training.dtype != DType::f32)
    throw ConfigError{fmt::format("--precision bf16: expected --dtype f32, not {}", name_of(training.dtype))};
  if (line.runtime.reductions.gradient_compression) {
    if (training.dtype != DType::f32)
      throw ConfigError{fmt::format("--compress-gradients: expected --dtype f32, not {}", name_of(training.dtype))};
    line.runtime.reductions.kind = ReductionKind::hierarchical;
  }
  if (training.epochs && training.steps)
    throw ConfigError{"--epochs and --steps were both given: expected at most one of the two"};
  const bool initialized = !training.initial_weights.file.empty();
  if (line.purpose != Purpose::training) {
    const char* const instead = predicts ? "--predict" : "--eval-only";
    if (!of_training.empty())
      throw ConfigError{fmt::format("{}: expected only in a training, not with {}", of_training.front(), instead)};
    if (!initialized && training.resume.from == Resume::From::none)
      throw ConfigError{fmt::format(
          "{}: expected --resume auto, --resume DIR or --init-from FILE, with the weights to use", instead)};
    if (predicts && training.evaluation_samples) throw ConfigError{"--eval-samples: expected no --predict"};
    if (predicts && !training.exported_weights.empty()) throw ConfigError{"--export: expected no --predict"};
  }
  if (initialized && (training.resume.from == Resume::From::path ||
                      (line.purpose != Purpose::training && training.resume.from != Resume::From::none)))
    throw ConfigError{"--init-from and --resume were both given: expected at most one of the two"};
  if (!initialized && training.initial_weights.match == InitialWeights::Match::some)
    throw ConfigError{"--partial: expected only with --init-from"};
  if (training.checkpoints.empty() && training.resume.from == Resume::From::newest)
    throw ConfigError{"--resume auto: expected --checkpoint-dir, in which to look for the newest checkpoint"};
  if (training.checkpoints.empty() && of_folder)
    throw ConfigError{
        "--checkpoint-every, --keep, --keep-best, --checkpoint-optional: expected only with --checkpoint-dir"};
  of_models.require(training.model);
  if (!has_gpu_kernels(training.model))
    line.runtime.needs_cpu = fmt::format("--model {} has no GPU kernels", names_of({training.model}));
  else if (training.precision == nn::Precision::bf16)
    line.runtime.needs_cpu = "--precision bf16 has no GPU kernels";
  for (int i = 1; i < argc; ++i) (line.runtime.program_options += argv[i]) += ' ';
  return line;
}

}  // namespace lockstep
