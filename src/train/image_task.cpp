// Training on labelled images: the data, and the models that take them.
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <lockstep/base/error.hpp>
#include <lockstep/input/batch_schedule.hpp>
#include <lockstep/input/idx.hpp>
#include <lockstep/input/shards.hpp>
#include <lockstep/nn/convnet.hpp>
#include <lockstep/nn/mlp.hpp>

#include "train/task.hpp"

namespace lockstep {
namespace {

/// Weights and biases of dense layers between these sizes.
double weights_between(const std::vector<std::int64_t>& sizes) {
  double weights = 0;
  for (std::size_t layer = 1; layer < sizes.size(); ++layer)
    weights += (static_cast<double>(sizes[layer - 1]) + 1) * static_cast<double>(sizes[layer]);
  return weights;
}

class ImageTask final : public TrainingTask {
 public:
  explicit ImageTask(const TrainingOptions& options)
      : options_{options},
        data_{options.predict.empty() ? load_image_data(options.data, options.classes)
                                      : ImageData{load_images(options.predict), {}}} {}

  TrainingSamples samples() const override { return {train_, test_}; }
  std::uint64_t data_digest() const override { return digest(data_); }
  void require_model_fits(const FitOptions& fit, const Room& room) const override;
  nn::Model& make_model(Strategy& strategy, std::shared_ptr<const ops::Kernels> kernels) override {
    if (options_.model == ModelKind::convnet)
      keep(std::make_unique<nn::Convnet>(strategy, convnet(), std::move(kernels)));
    else
      keep(std::make_unique<nn::Mlp>(strategy, mlp(), std::move(kernels)));
    return *model_;
  }
  std::string write_sample() override { return {}; }
  std::unique_ptr<Predictor> make_predictor(Stream& stream) override {
    return make_image_predictor(logits_, data_.train, options_.dtype, stream);
  }

 private:
  nn::MlpOptions mlp() const {
    return {.inputs = data_.train.features(),
            .hidden = options_.hidden,
            .classes = options_.classes,
            .dtype = options_.dtype,
            .seed = options_.seed};
  }
  nn::ConvnetOptions convnet() const {
    return {.height = data_.train.rows,
            .width = data_.train.columns,
            .channels = data_.train.channels,
            .classes = options_.classes,
            .batch_norm = options_.batch_norm,
            .dropout = options_.dropout,
            .dtype = options_.dtype,
            .seed = options_.seed};
  }
  template <class Model>
  void keep(std::unique_ptr<Model> model) {
    logits_ = [of = model.get()](const SampleBatch& batch) { return of->logits(batch); };
    model_ = std::move(model);
  }

  void require_mlp_fits(const Room& room) const;
  void require_convnet_fits(const FitOptions& fit, const Room& room) const;

  const TrainingOptions& options_;
  ImageData data_;
  ImageSamples train_{data_.train, options_.dtype}, test_{data_.test, options_.dtype};
  std::unique_ptr<nn::Model> model_;
  Logits logits_;  ///< its
};

void ImageTask::require_model_fits(const FitOptions& fit, const Room& room) const {
  options_.model == ModelKind::convnet ? require_convnet_fits(fit, room) : require_mlp_fits(room);
}

void ImageTask::require_mlp_fits(const Room& room) const {
  std::vector<std::int64_t> sizes = options_.hidden;
  sizes.insert(sizes.begin(), data_.train.features());
  sizes.push_back(options_.classes);
  require_memory(options_, {.weights = weights_between(sizes)}, room,
                 fmt::format("--hidden {}", fmt::join(options_.hidden, ",")), "smaller layers");
}

void ImageTask::require_convnet_fits(const FitOptions& fit, const Room& room) const {
  std::string images = fmt::format("{} x {}", data_.train.rows, data_.train.columns);
  if (data_.train.rows < 6 || data_.train.columns < 6)
    throw ConfigError{fmt::format("--model convnet: the images are {}; expected 6 x 6 or more", images)};
  const nn::ConvnetOptions model = convnet();
  if (model.channels != 1) images += fmt::format(" x {}", model.channels);
  // Two 3 x 3 convolutions, each without its edge, and 2 x 2 pooling.
  const std::int64_t pooled = (model.height - 4) / 2 * ((model.width - 4) / 2) * model.filters[1];
  const auto height = static_cast<double>(model.height), width = static_cast<double>(model.width),
             first = static_cast<double>(model.filters[0]), second = static_cast<double>(model.filters[1]);
  const double of_first = (height - 2) * (width - 2) * first, of_second = (height - 4) * (width - 4) * second;
  const std::int64_t batch =
      options_.predict.empty() ? BatchSchedule{data_.train.count(), fit.global_batch}.largest_batch() : 1;
  const auto samples = static_cast<double>(shard_capacity(shard_capacity(batch, fit.shards), fit.accumulate));
  // Outputs, the gradient of the first, and with batch norm the sums of both convolutions.
  const bool normalises = model.batch_norm != nn::BatchNormKind::none;
  const ModelSize size{.weights = weights_between({9 * model.channels, model.filters[0]}) +
                                  weights_between({9 * model.filters[0], model.filters[1]}) +
                                  weights_between({pooled, model.hidden, model.classes}),
                       .activations = samples * ((normalises ? 3 : 2) * of_first + (normalises ? 2 : 1) * of_second)};
  require_memory(options_, size, room, fmt::format("--model convnet for images of {}", images),
                 "smaller images, or fewer samples of a shard at a time (--global-batch, --accumulate)");
}

}  // namespace

std::unique_ptr<TrainingTask> load_image_task(const TrainingOptions& options) {
  return std::make_unique<ImageTask>(options);
}

}  // namespace lockstep
