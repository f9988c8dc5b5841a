// Training on labelled images and rows of numbers: the data, and the models that take them.
#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <lockstep/core/base/error.hpp>
#include <lockstep/models/input/augmentation.hpp>
#include <lockstep/models/input/labelled_data.hpp>
#include <lockstep/models/nn/models.hpp>

#include "apps/lockstep-train/data/loaded_data.hpp"
#include "apps/lockstep-train/data/scale_hint.hpp"
#include "apps/lockstep-train/tasks/task.hpp"
#include "core/base/element_count.hpp"
#include "core/order/shard_sizes.hpp"
#include "core/order/shares.hpp"
#include "models/input/batch_schedule.hpp"
#include "models/nn/activations.hpp"
#include "models/ops/patch_memory.hpp"

namespace lockstep {
namespace {

/// Weights and biases of dense layers between these sizes.
double weights_between(const std::vector<std::int64_t>& sizes) {
  double weights = 0;
  for (std::size_t layer = 1; layer < sizes.size(); ++layer)
    weights += (static_cast<double>(sizes[layer - 1]) + 1) * static_cast<double>(sizes[layer]);
  return weights;
}

/// The bytes of the patches that a convnet's convolutions need on a GPU for a shard: the images' own, or the gradients
/// of those of the second convolution, which are not rounded to bf16.
double bytes_of_patches(const nn::ConvnetOptions& model, std::int64_t samples) {
  const auto bytes = [&](std::int64_t edge, std::int64_t inputs, std::int64_t outputs, DType dtype) {
    return ops::patch_memory({.images = samples,
                              .height = model.height - edge,
                              .width = model.width - edge,
                              .inputs = inputs,
                              .kernel_height = 3,
                              .kernel_width = 3,
                              .outputs = outputs},
                             dtype)
        .bytes;
  };
  const auto& [first, second] = model.filters;
  return static_cast<double>(
      std::max(bytes(0, model.channels, first, nn::activation_type(model.dtype, model.precision)),
               bytes(2, first, second, model.dtype)));
}

LabelledData::Options reading_options(const TrainingOptions& options, const DataRequest& request) {
  const bool has_schema = request.saved && request.saved->data;
  // A test set alone does not always tell how many classes there are, and never how columns are scaled.
  const bool known = (options.classes || options.task == DataSchema::Task::regression) &&
                     (has_schema || options.scaling == DataSchema::Scaling::none);
  LabelledData::Options reading{.classes = options.classes,
                                .dtype = *options.dtype,
                                .label_column = *options.label_column,
                                .task = *options.task,
                                .scaling = *options.scaling,
                                .memory_bytes = options.data_memory_bytes,
                                .test_fraction = *options.test_fraction,
                                .test_only = known && request.test_only};
  if (!request.saved) return reading;
  reading.schema = request.saved->data;
  if (!reading.schema && request.saved->role == SavedModel::Role::restored) reading.split = DataSchema::Split::last;
  return reading;
}

LabelledData load(TrainingOptions& options, const DataRequest& request) {
  const LabelledData::Options reading = reading_options(options, request);
  LabelledData data = options.predict.empty() ? load_labelled_data_once(options.data, reading, request.index_folder)
                                              : load_unlabelled_data_once(options.predict, reading);
  if (options.task == DataSchema::Task::classes) options.classes = data.classes;
  return data;
}

class ImageTask final : public TrainingTask {
 public:
  ImageTask(TrainingOptions& options, const DataRequest& request) : options_{options}, data_{load(options, request)} {
    if (options.top && (*options.top < 1 || *options.top > data_.classes))
      throw ConfigError{fmt::format("--top {}: expected a number from 1 to {}, as the model has so many classes",
                                    *options.top, data_.classes)};
    if (options.augmentation == AugmentedSamples::Augmentation{}) return;
    require_images("--augment", "no --augment");
    augmented_.emplace(train(), data_.sample, options.augmentation, options.seed);
  }

  FitOptions::Samples samples() const override {
    return {augmented_ ? *augmented_ : train(), data_.test ? *data_.test : train()};
  }
  std::string data_text() const override { return options_.predict.empty() ? data_.text : ""; }
  std::uint64_t data_digest() const override { return data_.digest; }
  ModelDescription description() const override {
    return {.kind = *options_.model,
            .dtype = *options_.dtype,
            .precision = *options_.precision,
            .sample = data_.sample,
            .outputs = outputs(),
            .hidden = *options_.hidden,
            .loss = loss(),
            .batch_norm = *options_.batch_norm,
            .dropout = *options_.dropout};
  }
  const DataSchema& schema() const override { return data_.schema; }
  void require_model_fits(const FitOptions& fit, const Room& room) const override;
  nn::Model& make_model(Strategy& strategy, std::shared_ptr<const ops::Kernels> kernels) override {
    model_ = options_.model == ModelKind::convnet ? nn::make_convnet(strategy, convnet(), std::move(kernels))
                                                  : nn::make_mlp(strategy, mlp(), std::move(kernels));
    return *model_;
  }
  std::string divergence_hint() const override { return scale_hint(train(), data_.schema); }
  std::string write_sample() override { return {}; }
  std::unique_ptr<Predictor> make_predictor(Stream& stream) override {
    const auto logits = [&model = *model_](const SampleBatch& batch) { return model.logits(batch); };
    if (regresses()) return make_number_predictor(logits, train(), data_.schema.label_scale, stream);
    return make_class_predictor(logits, train(), {data_.schema.classes, options_.top}, stream);
  }

 private:
  /// Whoever reads the test set alone trains on nothing.
  const SampleSource& train() const { return data_.train ? *data_.train : *data_.test; }
  bool regresses() const { return data_.schema.task == DataSchema::Task::regression; }
  std::int64_t outputs() const { return regresses() ? 1 : data_.classes; }
  nn::MlpOptions::Loss loss() const {
    return regresses() ? nn::MlpOptions::Loss::squared_error : nn::MlpOptions::Loss::cross_entropy;
  }
  nn::MlpOptions mlp() const {
    return {.inputs = element_count(data_.sample),
            .hidden = *options_.hidden,
            .classes = outputs(),
            .dtype = *options_.dtype,
            .seed = options_.seed,
            .precision = *options_.precision,
            .loss = loss()};
  }
  nn::ConvnetOptions convnet() const {
    return {.height = data_.sample[0],
            .width = data_.sample[1],
            .channels = data_.sample.size() > 2 ? data_.sample[2] : 1,
            .classes = data_.classes,
            .batch_norm = *options_.batch_norm,
            .dropout = *options_.dropout,
            .dtype = *options_.dtype,
            .seed = options_.seed,
            .precision = *options_.precision};
  }
  /// ConfigError unless the data are images.
  void require_images(std::string_view option, std::string_view expected) const;
  void require_mlp_fits(const Room& room) const;
  void require_convnet_fits(const FitOptions& fit, const Room& room) const;

  const TrainingOptions& options_;
  LabelledData data_;
  std::optional<AugmentedSamples> augmented_;
  std::unique_ptr<nn::Model> model_;
};

void ImageTask::require_model_fits(const FitOptions& fit, const Room& room) const {
  options_.model == ModelKind::convnet ? require_convnet_fits(fit, room) : require_mlp_fits(room);
}

void ImageTask::require_images(std::string_view option, std::string_view expected) const {
  if (!data_.has_images())
    throw ConfigError{fmt::format("{}: the samples of {} are rows of {} numbers, not images; expected {}", option,
                                  (options_.predict.empty() ? options_.data : options_.predict).string(),
                                  data_.sample.front(), expected)};
}

void ImageTask::require_mlp_fits(const Room& room) const {
  std::vector<std::int64_t> sizes = *options_.hidden;
  sizes.insert(sizes.begin(), element_count(data_.sample));
  sizes.push_back(outputs());
  require_memory(options_, {.weights = weights_between(sizes)}, room,
                 fmt::format("--hidden {}", fmt::join(*options_.hidden, ",")), "smaller layers");
}

void ImageTask::require_convnet_fits(const FitOptions& fit, const Room& room) const {
  require_images("--model convnet", "--model mlp");
  const std::string images = fmt::format("{}", fmt::join(data_.sample, " x "));
  if (data_.sample[0] < 6 || data_.sample[1] < 6)
    throw ConfigError{fmt::format("--model convnet: the images are {}; expected 6 x 6 or more", images)};
  const nn::ConvnetOptions model = convnet();
  // Two 3 x 3 convolutions, each without its edge, and 2 x 2 pooling.
  const std::int64_t pooled = (model.height - 4) / 2 * ((model.width - 4) / 2) * model.filters[1];
  const auto height = static_cast<double>(model.height), width = static_cast<double>(model.width),
             first = static_cast<double>(model.filters[0]), second = static_cast<double>(model.filters[1]);
  const double of_first = (height - 2) * (width - 2) * first, of_second = (height - 4) * (width - 4) * second;
  const std::int64_t batch =
      options_.predict.empty() ? BatchSchedule{train().count(), fit.global_batch}.largest_batch() : 1;
  const std::int64_t samples = shard_capacity(shard_capacity(batch, fit.shards), fit.accumulate);
  // Outputs, the gradient of the first, and with batch norm the sums of both convolutions.
  const bool normalises = model.batch_norm != nn::ConvnetOptions::BatchNorm::none;
  const double activations = (normalises ? 3 : 2) * of_first + (normalises ? 2 : 1) * of_second;
  const bool is_joint = model.batch_norm == nn::ConvnetOptions::BatchNorm::whole_batch && fit.steps > 0;
  const ModelSize size{.weights = weights_between({9 * model.channels, model.filters[0]}) +
                                  weights_between({9 * model.filters[0], model.filters[1]}) +
                                  weights_between({pooled, model.hidden, model.classes}),
                       .activations = static_cast<double>(samples) * activations,
                       .shards_at_once = is_joint ? static_cast<int>(Shares{fit.shards, room.ranks}.largest()) : 1,
                       .other_bytes = room.device == DeviceKind::cuda ? bytes_of_patches(model, samples) : 0};
  require_memory(options_, size, room, fmt::format("--model convnet for images of {}", images),
                 fmt::format("smaller images, {}fewer samples of a shard at a time (--global-batch, --accumulate)",
                             is_joint ? "fewer shards on each rank, or " : "or "));
}

}  // namespace

std::unique_ptr<TrainingTask> load_image_task(TrainingOptions& options, const DataRequest& request) {
  return std::make_unique<ImageTask>(options, request);
}

}  // namespace lockstep
