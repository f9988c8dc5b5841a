// What a fit evaluates, when, and in which pieces.
#include <cstdint>
#include <numbers>
#include <numeric>
#include <vector>

#include <catch2/catch.hpp>

#include "fit_models.hpp"

using namespace lockstep;
using namespace lockstep::test;

TEST_CASE("an evaluation of a text is by the label, with bits per byte; one of images has none of these") {
  const TextSet test = text(5, 4);
  const EvaluationReport report =
      train(text(8, 4), test, {.global_batch = 8, .steps = 1, .shards = 4}).result.last_evaluation;
  double sum = 0, even = 0;
  for (const std::int32_t label : labels_of(test, 20)) {
    sum += label;
    even += label % 2 == 0;
  }
  CHECK(report.loss == sum / 20);
  CHECK(report.accuracy == even / 20);
  CHECK(report.bits_per_byte.value() == sum / 20 / std::numbers::ln2);
  const FitOptions one{.global_batch = 8, .steps = 1, .shards = 1};
  CHECK_FALSE(train(images(8), one, 3, column_sums).result.last_evaluation.bits_per_byte);
}

TEST_CASE("an evaluation takes 1024 labels at a time, or a sample a shard where that is more") {
  const FitOptions options{.global_batch = 1, .steps = 1, .shards = 4};
  using Sizes = std::vector<std::int64_t>;
  CHECK(train(text(1, 128), text(11, 128), options).evaluated == Sizes{2, 2, 2, 2, 0, 1, 1, 1});
  CHECK(train(text(1, 300), text(6, 300), options).evaluated == Sizes{1, 1, 1, 1, 0, 1, 0, 1});
  CHECK(train(text(1, 2000), text(4, 2000), options).evaluated == Sizes{1, 1, 1, 1});
}

TEST_CASE("an evaluation may take the first samples alone, and each step knows how many are to come") {
  const TextSet test = text(11, 4);
  const Trained trained = train(
      text(1, 4), test, {.global_batch = 1, .steps = 5, .shards = 4, .evaluate_every = 2, .evaluation_samples = 3});
  CHECK(trained.evaluations_left == std::vector<std::int64_t>{3, 3, 2, 2, 1});
  CHECK(std::accumulate(trained.evaluated.begin(), trained.evaluated.end(), std::int64_t{0}) == 9);
  CHECK(trained.result.last_evaluation.samples == 3);
  const std::vector<std::int32_t> labels = labels_of(test, 12);
  CHECK(trained.result.last_evaluation.loss == std::accumulate(labels.begin(), labels.end(), 0.) / 12);
  const FitOptions more{.global_batch = 1, .steps = 1, .shards = 4, .evaluation_samples = 100};
  CHECK(train(text(1, 4), test, more).result.last_evaluation.samples == 11);
}

TEST_CASE("a run that goes on after its last step only evaluates, and tells nobody") {
  const FitOptions options{.global_batch = 4, .steps = 3, .shards = 1, .start = {.steps = 3, .recent = {{6, 4}}}};
  const Trained trained = train(images(8), options, 3, column_sums);
  CHECK(trained.seen.empty());
  CHECK(trained.losses.empty());
  CHECK(trained.evaluated == std::vector<std::int64_t>{1});
  CHECK(trained.evaluations_told == 0);
  CHECK(trained.result.last_evaluation.step == 3);
  CHECK(trained.result.samples == 12);
  CHECK(trained.result.train_loss == 1.5);
}
