// Labels and tokens that a GPU finds to be wrong, of which the host learns late: what the ranks are told, and that the
// step changes nothing that outlasts it.
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include <lockstep/models.hpp>

#include "core/control/meeting_point.hpp"
#include "core/order/sample_order.hpp"
#include "models/input/samples.hpp"
#include "models/input/text_sets.hpp"
#include "models/input/tokens.hpp"
#include "support/ranks.hpp"
#include "sync/group/replica_group.hpp"
#include "sync/strategy/inside.hpp"

using namespace lockstep;
using namespace lockstep::test;

namespace {

constexpr std::int64_t samples = 26, batch = 13, windows = 5;
constexpr std::uint64_t order_seed = 7;

/// The last sample of the second step, which the last rank computes.
std::int64_t bad_sample() {
  return sample_order(samples, order_seed, 0).back();
}

ImageData::Set images_with_label(std::uint8_t label) {
  ImageData::Set images{.rows = 2, .columns = 3, .pixels = {}, .labels = {}};
  for (std::int64_t i = 0; i < samples; ++i) {
    for (int pixel = 0; pixel < 6; ++pixel) images.pixels.push_back(static_cast<std::uint8_t>(31 * i + 7 * pixel));
    images.labels.push_back(static_cast<std::uint8_t>(i == bad_sample() ? label : i % 3));
  }
  return images;
}

/// Tokens 0, 1 and 2, but for one in the middle of a window.
TextSet text_with_token(std::uint8_t token) {
  std::vector<std::uint8_t> text;
  for (std::int64_t i = 0; i < samples * windows + 1; ++i) text.push_back(static_cast<std::uint8_t>(i % 7 % 3));
  text[static_cast<std::size_t>(bad_sample() * windows + 2)] = token;
  return {tokens_of_text(std::move(text)), windows};
}

using MakeModel = std::function<std::unique_ptr<nn::Model>(Strategy&, std::shared_ptr<const ops::Kernels>)>;

std::unique_ptr<nn::Model> mlp(Strategy& strategy, std::shared_ptr<const ops::Kernels> kernels) {
  return nn::make_mlp(strategy, {.inputs = 6, .hidden = {5}, .classes = 3}, std::move(kernels));
}

std::unique_ptr<nn::Model> gpt(Strategy& strategy, std::shared_ptr<const ops::Kernels> kernels) {
  return nn::make_gpt(strategy, {.layers = 1, .heads = 2, .width = 4, .context = windows, .vocabulary = 3},
                      std::move(kernels));
}

/// What a training leaves, and what this rank was told of its failure.
struct Left {
  std::vector<std::vector<float>> values;  ///< of the variables, and of their slots
  std::int64_t steps;
  double rate;
  std::string mine, of_others, line;
};

Left after(int steps, const SampleSource& data, const MakeModel& make_model) {
  Strategy strategy = runtime().make_strategy();
  const std::shared_ptr<const ops::Kernels> kernels =
      ops::make_kernels(ops::Kernels::Choice::automatic, {}, strategy.stream());
  const auto model = make_model(strategy, kernels);
  AdamW optimizer{{.learning_rate = 0.1, .clip_norm = 0.01}};
  Observer observer;
  Left left{};
  try {
    fit(strategy, *model, optimizer, {data, data},
        {.global_batch = batch, .steps = steps, .seed = order_seed, .shards = 4 * ranks(), .evaluation_samples = 1},
        observer);
  } catch (const InvalidArgument& error) {
    left.mine = error.what();
  } catch (const PeerError& error) {
    left.of_others = error.what();
  }
  if (const auto& failure = inside(strategy).group().meeting().failure()) left.line = failure->line;
  const auto variables = model->variables();
  for (const auto& range : strategy.store().ranges(std::vector<Variable>{variables.begin(), variables.end()})) {
    left.values.push_back(range.values.to_vector<float>());
    for (const char* const slot : {"first_moment", "second_moment"})
      left.values.push_back(range.slot(slot).to_vector<float>());
  }
  left.steps = optimizer.steps(strategy);
  left.rate = optimizer.learning_rate();
  return left;
}

void check_left_as_after_one_step(const SampleSource& good, const SampleSource& bad, const MakeModel& make_model,
                                  const std::string& words) {
  const Left one_step = after(1, good, make_model);
  CHECK(one_step.mine + one_step.of_others == "");
  const Left failed = after(2, bad, make_model);
  CHECK(failed.values == one_step.values);
  CHECK(failed.steps == 1);
  CHECK(failed.rate == one_step.rate);
  if (odd_one()) {
    CHECK_THAT(failed.mine, Catch::StartsWith(words));
  } else {
    CHECK_THAT(failed.of_others,
               Catch::StartsWith("replica " + std::to_string(last()) + " (") && Catch::Contains("failed: " + words));
  }
  CHECK_THAT(failed.line, Catch::Contains(words) && Catch::Contains("in step 2"));
  expect_in_step();
}

}  // namespace

TEST_CASE("a label that is no class fails its step on all ranks, which leaves what the step before it left") {
  const ImageData::Set good = images_with_label(2), bad = images_with_label(7);
  check_left_as_after_one_step(ImageSamples{good, DType::f32}, ImageSamples{bad, DType::f32}, mlp,
                               "softmax_cross_entropy: label 7 of row ");
}

TEST_CASE("a token outside the vocabulary fails its step on all ranks, which leaves what the step before it left") {
  const TextSet good = text_with_token(2), bad = text_with_token(7);
  check_left_as_after_one_step(TextSamples{good}, TextSamples{bad}, gpt, "gather_rows: index 7 at position ");
}
