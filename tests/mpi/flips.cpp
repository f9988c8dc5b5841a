// Training in which one replica's weight is another one from some step on: found by the next attestation.
#include <algorithm>
#include <array>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include <lockstep/core/base/error.hpp>
#include <lockstep/models/fit/fit.hpp>
#include <lockstep/sync/optim/adamw.hpp>
#include <lockstep/sync/optim/sgd.hpp>

#include "core/base/digest.hpp"
#include "core/control/meeting_point.hpp"
#include "models/fit/injected_fault.hpp"
#include "models/input/samples.hpp"
#include "models/nn/convnet.hpp"
#include "models/nn/mlp.hpp"
#include "models/ops/image_kernels.hpp"
#include "support/quiet_log.hpp"
#include "support/ranks.hpp"
#include "sync/group/replica_group.hpp"
#include "sync/strategy/inside.hpp"

using namespace lockstep;
using namespace lockstep::test;

namespace {

/// 60 images of 6 x 6 in three classes, which differ in where they are bright.
ImageData::Set images() {
  ImageData::Set set;
  set.rows = set.columns = 6;
  for (int image = 0; image < 60; ++image) {
    set.labels.push_back(static_cast<std::uint8_t>(image % 3));
    for (int pixel = 0; pixel < 36; ++pixel)
      set.pixels.push_back(static_cast<std::uint8_t>((pixel % 3 == image % 3 ? 150 : 10) + 7 * image % 90 + pixel));
  }
  return set;
}

/// What a run told.
class Told final : public Observer {
 public:
  explicit Told(std::function<void(std::int64_t)> after_step = [](std::int64_t) {})
      : after_step_{std::move(after_step)} {}

  void on_step(const Step& report) override { after_step_(steps = report.step); }
  void on_drift(std::int64_t step, const DriftError& error) override {
    drifted_in = step;
    drift = error.drift();
  }

  std::int64_t steps = 0;  ///< that went well
  std::int64_t drifted_in = 0;
  DriftError::Drift drift;

 private:
  std::function<void(std::int64_t)> after_step_;
};

enum class Trained { mlp, convnet };

struct Run {
  Trained model = Trained::mlp;
  std::int64_t steps = 8;
  std::optional<std::int64_t> attest_every = 3;
  std::optional<InjectedFault> fault = {};
  std::int64_t first = 0;  ///< steps that count as made, with the initial weights
  int attest_first = 0;
};

std::unique_ptr<nn::Model> make_model(Strategy& strategy, Trained model) {
  const std::shared_ptr<const ops::Kernels> kernels =
      ops::make_kernels(ops::Kernels::Choice::automatic, {}, strategy.stream());
  if (model == Trained::mlp)
    return std::make_unique<nn::Mlp>(
        strategy, nn::MlpOptions{.inputs = 36, .hidden = {8, 5}, .classes = 3, .dtype = DType::f32}, kernels);
  return std::make_unique<nn::Convnet>(strategy,
                                       nn::ConvnetOptions{.height = 6,
                                                          .width = 6,
                                                          .filters = {2, 3},
                                                          .hidden = 5,
                                                          .classes = 3,
                                                          .batch_norm = nn::ConvnetOptions::BatchNorm::per_shard},
                                       kernels);
}

std::unique_ptr<Optimizer> make_optimizer(Trained model) {
  if (model == Trained::mlp) return std::make_unique<Sgd>(Sgd::Options{.learning_rate = 0.01, .momentum = 0.9});
  return std::make_unique<AdamW>(AdamW::Options{.learning_rate = 0.001, .weight_decay = 0.01});
}

/// COLL.
void fit_images(Strategy& strategy, nn::Model& model, const FitOptions& options, Observer& told,
                const std::optional<InjectedFault>& fault = {}) {
  const ImageData::Set set = images();
  const ImageSamples samples{set, DType::f32};
  const auto optimizer = make_optimizer(model.name() == "mlp" ? Trained::mlp : Trained::convnet);
  fit_with_fault(strategy, model, *optimizer, {samples, samples}, options, told, fault);
}

/// COLL. What a training told, and the words of its DriftError, the same on every rank.
std::pair<Told, std::string> train(const Run& run) {
  const QuietLog quiet;
  Strategy strategy = runtime().make_strategy();
  const auto model = make_model(strategy, run.model);
  FitOptions options{.global_batch = 4 * ranks(), .steps = run.steps, .shards = ranks(), .evaluate_every = 1000};
  options.attest_every = run.attest_every;
  options.attest_first = run.attest_first;
  options.start = Observer::State{.steps = run.first};
  Told told;
  told.steps = run.first;
  const std::string words = message_of<DriftError>([&] { fit_images(strategy, *model, options, told, run.fault); });
  return {told, strategy.same_on_all(words).value()};
}

/// The name of the variable in which the replicas differ. `found` is the step after which that is said, from 1.
std::string check_found(const Run& run, std::int64_t found) {
  const auto [told, words] = train(run);
  CHECK(told.steps == found - 1);
  CHECK(told.drifted_in == found);
  CHECK_FALSE(words.empty());
  REQUIRE_FALSE(told.drift.values.empty());
  CHECK(told.drift.blamed == (ranks() > 2 ? std::vector{run.fault->rank} : std::vector<int>{}));
  const DriftError::Value& first = told.drift.values.front();
  const auto digest_of = [&](int replica) { return first.digests.at(static_cast<std::size_t>(replica)); };
  for (int replica = 0; replica < ranks(); ++replica) {
    const int other = (run.fault->rank + 1) % ranks();
    CHECK((digest_of(replica) == digest_of(other)) == (replica != run.fault->rank));
  }
  return first.name;
}

InjectedFault flip(int rank, std::int64_t step) {
  return {InjectedFault::Kind::flips, rank, step};
}

}  // namespace

TEST_CASE("a flipped bit is found by the next attestation, whichever step and rank it is") {
  if (ranks() == 1) return;
  for (std::int64_t step = 0; step < 8; ++step) {
    CAPTURE(step);
    const std::int64_t next = (step / 3 + 1) * 3;
    check_found({.fault = flip(static_cast<int>(step) % ranks(), step)}, std::min<std::int64_t>(next, 8));
  }
  check_found({.attest_every = 1, .fault = flip(last(), 4)}, 5);
  check_found({.attest_every = 100, .fault = flip(last(), 0)}, 8);
}

TEST_CASE("the first two steps of a run attest, also of one that continues another") {
  if (ranks() == 1) return;
  CHECK(FitOptions{}.attest_first == 2);
  for (const std::int64_t first : {0, 3}) {
    for (const std::int64_t step : {first, first + 1, first + 2}) {
      CAPTURE(first, step);
      check_found({.fault = flip(last(), step), .first = first, .attest_first = 2},
                  step < first + 2 ? step + 1 : (step / 3 + 1) * 3);
    }
  }
  const std::string words = train({.fault = flip(last(), 1), .attest_first = 2}).second;
  CHECK_THAT(words,
             Catch::Contains(" after step 2") &&
                 Catch::EndsWith("its gradient was summed over the ranks, so something else has changed it on a rank"));
  CHECK_THAT(mismatch_of([] { (void)train({.attest_first = odd_one() ? 2 : 3}); }),
             Catch::Contains(", 3 first attested, "));
}

TEST_CASE("a flipped bit is found in whichever variable it is, and there alone") {
  if (ranks() == 1) return;
  for (const Trained model : {Trained::mlp, Trained::convnet}) {
    // Which variable it is follows from the step. One step before it, so that no bias is 0.
    const std::set<std::string> of_mlp{"variable 'dense_0/weight'", "variable 'dense_0/bias'",
                                       "variable 'dense_1/weight'", "variable 'dense_1/bias'",
                                       "variable 'dense_2/weight'", "variable 'dense_2/bias'"};
    const std::size_t variables = model == Trained::mlp ? of_mlp.size() : 12;
    std::set<std::string> names;
    for (std::int64_t step = 0; step < 40 && names.size() < variables; ++step)
      names.insert(check_found({.model = model,
                                .steps = step + 1,
                                .attest_every = 100,
                                .fault = flip(last(), step),
                                .first = std::max<std::int64_t>(step - 1, 0)},
                               step + 1));
    CAPTURE(names);
    CHECK(names.size() == variables);
    if (model == Trained::mlp) CHECK(names == of_mlp);
  }
}

TEST_CASE("moving averages that drift are found, each of them") {
  if (ranks() == 1) return;
  const QuietLog quiet;
  for (const std::size_t drifting : {0, 1, 2, 3}) {
    Strategy strategy = runtime().make_strategy();
    const auto model = make_model(strategy, Trained::convnet);
    const std::vector<SyncOnReadVariable> averages = model->moving_averages();
    REQUIRE(averages.size() == 4);
    Told told{[&](std::int64_t step) {
      if (step != 2 || !odd_one()) return;
      const Tensor average = Tensor::on_host(averages[drifting].local());
      for (float& each : average.view().elements<float>()) each += 0.5F;
      copy(average.view(), averages[drifting].local(), strategy.stream());
      strategy.stream().synchronize();
    }};
    FitOptions options{.global_batch = 4 * ranks(), .steps = 9, .shards = ranks(), .evaluate_every = 1000};
    options.attest_every = 4;
    options.attest_first = 0;
    CHECK_THROWS_AS(fit_images(strategy, *model, options, told), DriftError);
    CHECK(told.drifted_in == 4);
    REQUIRE(told.drift.values.size() == 1);
    CHECK(told.drift.values.front().name == "variable " + std::string{averages[drifting].label()});
  }
}

TEST_CASE("a run in which nothing fails passes every attestation, and its steps cost no more agreements") {
  for (const Trained model : {Trained::mlp, Trained::convnet}) {
    const auto agreements = [&](std::optional<std::int64_t> every, int first = 0) {
      const auto before = inside(runtime().strategy()).group().meeting().meetings();
      const auto [told, words] = train({.model = model, .attest_every = every, .attest_first = first});
      CHECK(words.empty());
      CHECK(told.steps == 8);
      CHECK(told.drifted_in == 0);
      return inside(runtime().strategy()).group().meeting().meetings() - before;
    };
    const auto without = agreements(std::nullopt);
    CHECK(agreements(1) == without);
    CHECK(agreements(std::nullopt, FitOptions{}.attest_first) == without);
  }
}

TEST_CASE("without attestations nothing is found") {
  const auto [told, words] = train({.attest_every = std::nullopt, .fault = flip(last(), 2)});
  CHECK(words.empty());
  CHECK(told.steps == 8);
}

TEST_CASE("ranks that attest every so many steps, and others every so many more, are a mismatch") {
  if (ranks() == 1) return;
  CHECK_THAT(mismatch_of([] { (void)train({.attest_every = odd_one() ? 2 : 3, .attest_first = 2}); }),
             Catch::Contains("attestation every 2") && Catch::Contains("attestation every 3"));
  expect_in_step();
}

TEST_CASE("fewer than one step between attestations is refused") {
  CHECK_THROWS_WITH(train({.attest_every = 0}), "steps between attestations: 0, expected at least 1");
  CHECK_THROWS_WITH(train({.attest_first = -1}), "first steps that attest: -1, expected 0 or more");
}
