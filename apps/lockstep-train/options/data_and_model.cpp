#include <cstdint>
#include <limits>
#include <string>

#include "apps/lockstep-train/options/option_setters.hpp"
#include "apps/lockstep-train/options/option_table.hpp"

namespace lockstep {
namespace {

constexpr std::int64_t most_classes = 1 << 16, most_blocks = 1024, largest_size = 1 << 20;

/// The usual recipe for CIFAR shifts by up to 4 pixels.
AugmentedSamples::Augmentation parse_augmentation(const std::string& option, const std::string& text) {
  if (text == "flip") return {.flip = true};
  if (text == "crop") return {.crop = 4};
  if (text == "flip,crop" || text == "crop,flip") return {.flip = true, .crop = 4};
  throw ConfigError{fmt::format("{} {}: expected flip, crop or flip,crop", option, shown(text))};
}

std::int64_t parse_memory(const std::string& option, const std::string& text) {
  return parse_bytes(option, text, std::numeric_limits<std::int64_t>::max());
}

/// --sync-batch-norm beside it counts.
void normalise_shards(CommandLine& line, const std::string&, const std::string&) {
  if (!line.training.batch_norm) line.training.batch_norm = nn::ConvnetOptions::BatchNorm::per_shard;
}

/// The sizes of the smallest GPT-2 (Radford et al.: "Language models are unsupervised multitask learners", 2019).
/// Options of single sizes count, before it or after it.
void take_preset(CommandLine& line, const std::string& option, const std::string& text) {
  TrainingOptions& sizes = line.training;
  sizes.preset = parse_choice<GptPreset>(option, text, {{"gpt2", GptPreset::gpt2}});
  sizes.layers = sizes.layers.value_or(12);
  sizes.heads = sizes.heads.value_or(12);
  sizes.embed = sizes.embed.value_or(768);
  sizes.context = sizes.context.value_or(1024);
  sizes.vocabulary = sizes.vocabulary.value_or(50257);
}

}  // namespace

OptionGroup data_and_model_options() {
  return {
      "Data and model",
      {
          {.name = "--data",
           .value_name = "PATH",
           .help =
               "Folder of IDX files (train-images-idx3-ubyte and so on), of CIFAR-10 or CIFAR-100 in the binary "
               "version, of x_train.npy, y_train.npy, x_test.npy and y_test.npy, or of train.csv and test.csv; or "
               "one CSV file, a tenth of whose rows is the test set; plain or .gz. For gpt a text file, plain or .gz, "
               "or a folder of them, whose last tenth is the test set (required, but not for --predict)",
           .set = set(&TrainingOptions::data, any_text)},
          {.name = "--classes",
           .value_name = "N",
           .help = "Number of classes; labels are 0 to N-1; not for gpt (default: what the data say, 10 for IDX)",
           .set = set(&TrainingOptions::classes, count(1, most_classes)),
           .models = {ModelKind::mlp, ModelKind::convnet}},
          {.name = "--task",
           .value_name = "classes|regression",
           .help = "What the labels of a CSV file are: classes, or numbers, of which the model predicts one by squared "
                   "error; for mlp only (default classes)",
           .set = set(&TrainingOptions::task, one_of<DataSchema::Task>({{"classes", DataSchema::Task::classes},
                                                                        {"regression", DataSchema::Task::regression}})),
           .models = {ModelKind::mlp}},
          {.name = "--scale",
           .value_name = "none|standard",
           .help = "Scale the columns of a CSV file, and the numbers of --task regression, to a mean of 0 and a "
                   "standard deviation of 1 in the training set; for mlp only (default none)",
           .set = set(&TrainingOptions::scaling,
                      one_of<DataSchema::Scaling>(
                          {{"none", DataSchema::Scaling::none}, {"standard", DataSchema::Scaling::standard}})),
           .models = {ModelKind::mlp}},
          {.name = "--label-column",
           .value_name = "NAME",
           .help = "Column of a CSV file that holds the label, for mlp only (default label)",
           .set = set(&TrainingOptions::label_column, any_text),
           .models = {ModelKind::mlp}},
          {.name = "--test-fraction",
           .value_name = "P",
           .help = "Share of a single CSV file that becomes the test set; a hash of each row's number decides; for mlp "
                   "only (default 0.1)",
           .set = set(&TrainingOptions::test_fraction, parse_fraction),
           .models = {ModelKind::mlp}},
          {.name = "--data-memory",
           .value_name = "SIZE",
           .help = "Memory for the samples on each node, such as 64K, 1M or 1G: files beyond it are read batch by "
                   "batch; token files always are (default 1G)",
           .set = set(&TrainingOptions::data_memory_bytes, parse_memory)},
          {.name = "--augment",
           .value_name = "flip,crop",
           .help = "Change the images of the training set at random, in another way in each epoch: mirror them, shift "
                   "them by up to 4 pixels, or both; for images only (default: as they are)",
           .set = set(&TrainingOptions::augmentation, parse_augmentation),
           .models = {ModelKind::mlp, ModelKind::convnet}},
          {.name = "--model",
           .value_name = "mlp|convnet|gpt",
           .help = "For images, a multilayer perceptron, or a network of two convolutions and two dense layers, both "
                   "with ReLU; for text, a byte-level transformer (default mlp)",
           .set = set(&TrainingOptions::model, one_of(model_names()))},
          {.name = "--hidden",
           .value_name = "N,N,...",
           .help = "Sizes of the hidden layers, for mlp only (default 512,512)",
           .set = set(&TrainingOptions::hidden, parse_sizes),
           .models = {ModelKind::mlp}},
          {.name = "--batch-norm",
           .help = "Normalise after each convolution, each shard by itself; for convnet only",
           .set = normalise_shards,
           .models = {ModelKind::convnet}},
          {.name = "--sync-batch-norm",
           .help = "The same, but all shards of all ranks together; for convnet only",
           .set = set_to(&TrainingOptions::batch_norm, nn::ConvnetOptions::BatchNorm::whole_batch),
           .models = {ModelKind::convnet}},
          {.name = "--dropout",
           .value_name = "P",
           .help = "Dropout rate before each dense layer, for convnet only (default 0)",
           .set = set(&TrainingOptions::dropout, parse_fraction),
           .models = {ModelKind::convnet}},
          {.name = "--preset",
           .value_name = "gpt2",
           .help = "The sizes of the smallest GPT-2: --layers 12 --heads 12 --embed 768 --context 1024 --vocabulary "
                   "50257, each unless it is given; for gpt only",
           .set = take_preset,
           .models = {ModelKind::gpt}},
          {.name = "--layers",
           .value_name = "N",
           .help = "Transformer blocks; for gpt only (default 4)",
           .set = set(&TrainingOptions::layers, count(1, most_blocks)),
           .models = {ModelKind::gpt}},
          {.name = "--heads",
           .value_name = "N",
           .help = "Attention heads of each block; for gpt only (default 4)",
           .set = set(&TrainingOptions::heads, count(1, largest_size)),
           .models = {ModelKind::gpt}},
          {.name = "--embed",
           .value_name = "N",
           .help = "Length of the vector of a token, a multiple of --heads; for gpt only (default 128)",
           .set = set(&TrainingOptions::embed, count(1, largest_size)),
           .models = {ModelKind::gpt}},
          {.name = "--context",
           .value_name = "N",
           .help = "Tokens in a sample, the most that a token is predicted from; for gpt only (default 128)",
           .set = set(&TrainingOptions::context, count(1, largest_size)),
           .models = {ModelKind::gpt}},
          {.name = "--vocabulary",
           .value_name = "N",
           .help = "The data are files of 16-bit tokens below N, as llm.c writes them; for gpt only (default: the "
                   "tokens are the bytes of texts)",
           .set = set(&TrainingOptions::vocabulary, count(1, 1 << 16)),
           .models = {ModelKind::gpt}},
          {.name = "--binary",
           .help = "Train on the bytes of any files, not only of texts; for gpt only (default: refuse files that are "
                   "not text)",
           .set = set_to(&TrainingOptions::binary, true),
           .models = {ModelKind::gpt}},
          {.name = "--recompute",
           .help =
               "Compute each block's activations again in the backward pass instead of keeping those of all blocks: "
               "less memory, more time, the same bits; for gpt only",
           .set = set_to(&TrainingOptions::recompute, true),
           .models = {ModelKind::gpt}},
          {.name = "--dtype",
           .value_name = "f32|f64",
           .help = "Type of weights and arithmetic (default f32)",
           .set = set(&TrainingOptions::dtype, one_of<DType>({{"f32", DType::f32}, {"f64", DType::f64}}))},
          {.name = "--precision",
           .value_name = "full|bf16",
           .help = "full: everything is of --dtype (default); bf16: activations and products are of bf16, and the "
                   "weights stay f32",
           .set =
               set(&TrainingOptions::precision, one_of<nn::Model::Precision>({{"full", nn::Model::Precision::full},
                                                                              {"bf16", nn::Model::Precision::bf16}}))},
      }};
}

}  // namespace lockstep
