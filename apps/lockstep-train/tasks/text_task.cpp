// Training on text: the data, and the gpt.
#include <optional>
#include <span>
#include <string>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <lockstep/core/base/error.hpp>
#include <lockstep/models/input/labelled_data.hpp>
#include <lockstep/models/input/text.hpp>
#include <lockstep/models/nn/generate.hpp>

#include "apps/lockstep-train/data/loaded_data.hpp"
#include "apps/lockstep-train/tasks/task.hpp"
#include "core/base/digest.hpp"
#include "core/order/shard_sizes.hpp"
#include "models/input/batch_schedule.hpp"
#include "models/input/labelled_sets.hpp"
#include "models/input/samples.hpp"
#include "models/input/text_sets.hpp"
#include "models/nn/gpt.hpp"

namespace lockstep {
namespace {

/// What comes before a generated sample, so that it starts a line whatever the text.
constexpr const char* prompt = "\n";

const TrainingOptions& checked(const TrainingOptions& options) {
  if (options.vocabulary && !options.predict.empty())
    throw ConfigError{
        "--predict: expected no --vocabulary, which --preset sets too, since a file of tokens does not tell which "
        "texts they stand for"};
  if (options.vocabulary && options.binary)
    throw ConfigError{"--binary: expected no --vocabulary, which --preset sets too, since it is for files of tokens"};
  if (*options.heads < 1 || *options.embed % *options.heads != 0)
    throw ConfigError{
        fmt::format("--heads {}: expected a number that divides --embed, which is {}", *options.heads, *options.embed)};
  if (is_folder_of_images(options.data))
    throw ConfigError{fmt::format(
        "{}: is a folder of images, which train --model convnet; expected text files, plain or packed (gzip), for "
        "--model gpt (--data)",
        options.data.string())};
  if (options.top.value_or(1) > 256)
    throw ConfigError{
        fmt::format("--top {}: expected a number from 1 to 256, as there are so many bytes", *options.top)};
  return options;
}

class TextTask final : public TrainingTask {
 public:
  TextTask(const TrainingOptions& options, const DataRequest& request) : options_{checked(options)} {
    const TextData::Options reading{.context = *options.context,
                                    .vocabulary = options.vocabulary,
                                    .binary = options.binary,
                                    .memory_bytes = options.data_memory_bytes,
                                    .schema = request.saved ? request.saved->data : std::nullopt};
    if (!options.predict.empty()) {
      lines_ = load_text_lines_once(options.predict, reading);
      return;
    }
    DigestedText loaded = load_text_data_once(options.data, reading);
    data_ = std::move(loaded.data);
    digest_ = loaded.digest;
    train_ = TextSamples{data_.train};
    test_ = TextSamples{data_.test};
  }

  FitOptions::Samples samples() const override { return {train_, test_}; }
  std::uint64_t data_digest() const override {
    if (options_.predict.empty()) return digest_;
    Digest all;
    all.update(fmt::format("{}", digest(data_)));
    for (const std::string& line : lines_) all.update(line).update("\n");
    return all.value();
  }
  ModelDescription description() const override {
    const nn::GptOptions model = gpt();
    return {.kind = ModelKind::gpt,
            .dtype = model.dtype,
            .precision = model.precision,
            .layers = model.layers,
            .heads = model.heads,
            .embed = model.width,
            .context = model.context,
            .vocabulary = model.vocabulary};
  }
  const DataSchema& schema() const override { return data_.schema; }
  void require_model_fits(const FitOptions& fit, const Room& room) const override;
  nn::Model& make_model(Strategy& strategy, std::shared_ptr<const ops::Kernels> kernels) override {
    return model_.emplace(strategy, gpt(), std::move(kernels), Here::current());
  }
  std::string write_sample() override;
  std::unique_ptr<Predictor> make_predictor(Stream&) override {
    constexpr std::int64_t usual_length = 64;
    return make_text_predictor(
        *model_, lines_,
        {.length = options_.sample > 0 ? options_.sample : usual_length, .seed = options_.seed, .top = options_.top});
  }

 private:
  nn::GptOptions gpt() const {
    return {.layers = *options_.layers,
            .heads = *options_.heads,
            .width = *options_.embed,
            .context = *options_.context,
            .vocabulary = options_.vocabulary.value_or(256),
            .dtype = *options_.dtype,
            .seed = options_.seed,
            .precision = *options_.precision,
            .recompute = options_.recompute};
  }

  const TrainingOptions& options_;
  TextSets data_;
  std::uint64_t digest_ = 0;        ///< of these
  std::vector<std::string> lines_;  ///< to predict
  TextSamples train_{TextSet{}}, test_{TextSet{}};
  std::optional<nn::Gpt> model_;
};

std::string TextTask::write_sample() {
  if (options_.sample == 0) return "";
  const nn::GptOptions::Generation length{.length = options_.sample, .seed = options_.seed};
  if (!options_.vocabulary) return generate(*model_, prompt, length);
  // What a text begins with: where a tokenizer marks that, the first token of the data is the mark.
  std::int32_t first;
  data_.train.tokens->read(0, {&first, 1});
  return fmt::format("{}", fmt::join(generate(*model_, std::span{&first, 1}, length), " "));
}

void TextTask::require_model_fits(const FitOptions& fit, const Room& room) const {
  const nn::GptOptions model = gpt();
  const auto layers = static_cast<double>(model.layers), heads = static_cast<double>(model.heads),
             width = static_cast<double>(model.width), context = static_cast<double>(model.context),
             vocabulary = static_cast<double>(model.vocabulary);
  const std::int64_t batch =
      options_.predict.empty() ? BatchSchedule{train_.count(), fit.global_batch}.largest_batch() : 1;
  const auto windows = static_cast<double>(shard_capacity(shard_capacity(batch, fit.shards), fit.accumulate));
  // Weights of a block: queries, keys and values, the output of the heads, and two layers whose inner width is four
  // times the outer. Activations: the results of these and of the norms, and what a head keeps of a position: its
  // weight for any other, or on a GPU one number. There the scores and the weights are those of a single window.
  const bool on_gpu = room.device == DeviceKind::cuda;
  const double kept = on_gpu ? 1 : context, scores = on_gpu ? 2 * heads * context * context : 0;
  const double block = 16 * width + heads * kept;
  const ModelSize size{
      .weights = (vocabulary + context) * width + layers * 12 * width * width,
      .activations =
          windows * context * ((model.recompute ? layers * width + block : layers * block) + 12 * width + vocabulary) +
          scores};
  require_memory(options_, size, room,
                 fmt::format("--layers {} --heads {} --embed {} --context {}", model.layers, model.heads, model.width,
                             model.context),
                 fmt::format("smaller sizes, {}fewer samples of a shard at a time (--global-batch, --accumulate)",
                             model.recompute ? "or " : "--recompute, or "));
}

}  // namespace

std::unique_ptr<TrainingTask> load_text_task(const TrainingOptions& options, const DataRequest& request) {
  return std::make_unique<TextTask>(options, request);
}

}  // namespace lockstep
