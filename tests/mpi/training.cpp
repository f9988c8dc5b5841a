// Training of every model: on all ranks the same bits as on one that computes all the shards.
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>
#include <fmt/format.h>

#include <lockstep/models.hpp>

#include "models/input/samples.hpp"
#include "models/input/text_sets.hpp"
#include "models/input/tokens.hpp"
#include "models/nn/convnet.hpp"
#include "models/nn/gpt.hpp"
#include "models/nn/mlp.hpp"
#include "shared_folder.hpp"
#include "support/ranks.hpp"
#include "sync/group/local_group.hpp"
#include "sync/strategy/inside.hpp"

using namespace lockstep;
using namespace lockstep::test;

namespace {

constexpr std::uint64_t seed = 7;

ImageData::Set random_images(std::int64_t count, std::uint64_t set) {
  const RandomStream random{seed, RandomStream::Purpose::simulation, set};
  ImageData::Set images{.rows = 8, .columns = 7, .pixels = {}, .labels = {}};
  for (std::int64_t i = 0; i < count * images.rows * images.columns; ++i)
    images.pixels.push_back(static_cast<std::uint8_t>(random.below(256, static_cast<std::uint64_t>(i))));
  for (std::int64_t i = 0; i < count; ++i) images.labels.push_back(static_cast<std::uint8_t>(i % 3));
  return images;
}

TextSet random_text(std::int64_t bytes, std::uint64_t set) {
  const RandomStream random{seed, RandomStream::Purpose::simulation, set};
  std::vector<std::uint8_t> text;
  for (std::int64_t i = 0; i < bytes; ++i)
    text.push_back(static_cast<std::uint8_t>('a' + random.below(4, static_cast<std::uint64_t>(i))));
  return {tokens_of_text(std::move(text)), 5};
}

/// Everything that a run says but its times.
class Story final : public Observer {
 public:
  void on_step(const Step& report) override {
    text += fmt::format("{} {} {} {}\n", report.step, report.epoch, report.samples, report.loss);
  }
  void on_evaluation(const Evaluation& report) override {
    text += fmt::format("{} {} {} {}\n", report.step, report.epoch, report.loss, report.accuracy);
  }
  std::string text;
};

/// A model with an optimizer and the options of its run. 29 samples in batches of 13: the last of an epoch has 3, which
/// leave shards without any.
struct Experiment {
  std::function<std::unique_ptr<nn::Model>(Strategy&, std::shared_ptr<const ops::Kernels>)> model;
  std::function<std::unique_ptr<Optimizer>()> optimizer;
  const SampleSource& train;
  const SampleSource& test;
  int accumulate = 1;
};

std::string run(Strategy& strategy, const Experiment& experiment, int shards, int prefetch) {
  const std::shared_ptr<const ops::Kernels> kernels = ops::make_kernels(ops::Kernels::Choice::automatic);
  const auto model = experiment.model(strategy, kernels);
  const auto optimizer = experiment.optimizer();
  Story story;
  fit(strategy, *model, *optimizer, {experiment.train, experiment.test},
      {.global_batch = 13,
       .steps = 5,
       .seed = seed,
       .shards = shards,
       .accumulate = experiment.accumulate,
       .prefetch = prefetch,
       .evaluate_every = 2},
      story);
  strategy.attest();
  return story.text + to_hex(weights_digest(model->variables()));
}

/// Some ranks have more of them than others, unless there are 1, 2, 4 or 8.
int shards() {
  return ranks() > 8 ? 16 : 8;
}

void check_same_bits(const Experiment& experiment) {
  if (runtime().strategy().stream().kind() != DeviceKind::cpu) return;  // a group of one would be on the host
  Strategy strategy = runtime().make_strategy();
  const std::string together = run(strategy, experiment, shards(), rank() % 3);  // each rank as far ahead as it likes
  const auto group = make_local_group();
  Strategy alone = strategy_on(*group);
  CHECK(together == run(alone, experiment, shards(), 0));
}

std::unique_ptr<Optimizer> momentum() {
  return std::make_unique<Sgd>(Sgd::Options{.learning_rate = 0.1, .momentum = 0.9, .weight_decay = 0.01});
}

std::unique_ptr<Optimizer> adamw() {
  const LearningRate rate{{.peak = 0.01, .warmup_steps = 2, .decay_steps = 5}};
  return std::make_unique<AdamW>(AdamW::Options{.learning_rate = rate, .weight_decay = 0.1, .clip_norm = 0.5});
}

}  // namespace

TEST_CASE("an mlp is trained to the bits of one rank") {
  const ImageData::Set train = random_images(29, 1), test = random_images(5, 2);
  const ImageSamples train_samples{train, DType::f32}, test_samples{test, DType::f32};
  for (const int accumulate : {1, 2})
    check_same_bits({.model =
                         [](Strategy& strategy, auto kernels) {
                           return std::make_unique<nn::Mlp>(
                               strategy, nn::MlpOptions{.inputs = 56, .hidden = {9, 7}, .classes = 3, .seed = seed},
                               kernels);
                         },
                     .optimizer = momentum,
                     .train = train_samples,
                     .test = test_samples,
                     .accumulate = accumulate});
}

TEST_CASE("an observer may save a checkpoint after any step, and changes nothing by it") {
  const ImageData::Set images = random_images(29, 1);
  const ImageSamples samples{images, DType::f32};
  class Saver final : public Observer {
   public:
    Saver(Strategy& strategy, std::filesystem::path path) : strategy_{strategy}, path_{std::move(path)} {}
    void on_step(const Step& report) override {
      if (path_.empty() || report.step > 3) return;
      save_checkpoint(strategy_, path_);
      digest = digest_now();
    }
    void on_evaluation(const Evaluation&) override {
      if (!path_.empty()) save_checkpoint(strategy_, path_.string() + "-evaluated");
    }
    std::uint64_t digest_now() const {
      return weights_digest({handle_of<MirroredVariable>(inside(strategy_.store()).variables().front())});
    }
    std::uint64_t digest = 0;  ///< at the last save after a step

   private:
    Strategy& strategy_;
    std::filesystem::path path_;
  };
  const SharedFolder folder;
  const auto trained = [&](const std::filesystem::path& path) {
    Strategy strategy = runtime().make_strategy();
    nn::Mlp model{strategy,
                  {.inputs = 56, .hidden = {9}, .classes = 3, .seed = seed},
                  ops::make_kernels(ops::Kernels::Choice::automatic, {}, strategy.stream())};
    Saver saver{strategy, path};
    const auto optimizer = momentum();
    fit(strategy, model, *optimizer, {samples, samples}, {.global_batch = 13, .steps = 5, .shards = shards()}, saver);
    const std::uint64_t last = saver.digest_now();
    if (path.empty()) return last;
    restore_checkpoint(strategy, path);
    CHECK(saver.digest_now() == saver.digest);
    CHECK(saver.digest != last);
    restore_checkpoint(strategy, path.string() + "-evaluated");
    CHECK(saver.digest_now() == last);
    return last;
  };
  CHECK(trained(folder / "c") == trained({}));
}

TEST_CASE("a convnet with either batch norm and dropout is trained to the bits of one rank") {
  const ImageData::Set train = random_images(29, 1), test = random_images(5, 2);
  const ImageSamples train_samples{train, DType::f32}, test_samples{test, DType::f32};
  for (const nn::ConvnetOptions::BatchNorm kind :
       {nn::ConvnetOptions::BatchNorm::per_shard, nn::ConvnetOptions::BatchNorm::whole_batch})
    for (const int accumulate : {1, 2})
      check_same_bits({.model =
                           [kind](Strategy& strategy, auto kernels) {
                             return std::make_unique<nn::Convnet>(strategy,
                                                                  nn::ConvnetOptions{.height = 8,
                                                                                     .width = 7,
                                                                                     .filters = {3, 4},
                                                                                     .hidden = 6,
                                                                                     .classes = 3,
                                                                                     .batch_norm = kind,
                                                                                     .dropout = 0.25,
                                                                                     .seed = seed},
                                                                  kernels);
                           },
                       .optimizer = adamw,
                       .train = train_samples,
                       .test = test_samples,
                       .accumulate = accumulate});
}

TEST_CASE("a gpt is trained to the bits of one rank") {
  const TextSet train = random_text(29 * 5 + 1, 3), test = random_text(30, 4);
  const TextSamples train_samples{train}, test_samples{test};
  for (const int accumulate : {1, 2})
    check_same_bits(
        {.model =
             [](Strategy& strategy, auto kernels) {
               return std::make_unique<nn::Gpt>(
                   strategy, nn::GptOptions{.layers = 2, .heads = 2, .width = 8, .context = 5, .seed = seed}, kernels);
             },
         .optimizer = adamw,
         .train = train_samples,
         .test = test_samples,
         .accumulate = accumulate});
}
