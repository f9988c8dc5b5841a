// A loss that is no finite number: all ranks end alike, or go on.
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include <lockstep/core/base/error.hpp>
#include <lockstep/models/fit/fit.hpp>
#include <lockstep/sync/optim/sgd.hpp>

#include "models/input/samples.hpp"
#include "support/quiet_log.hpp"
#include "support/sim_outcome.hpp"
#include "sync/group/local_group.hpp"
#include "sync/strategy/inside.hpp"
#include "sync/update/update_kernels.hpp"

using namespace lockstep;
using namespace lockstep::test;

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

/// Where a loss is infinite: of the first shard alone, so that one rank computes it.
struct Bad {
  std::optional<std::int64_t> step;  ///< counted from 0
  bool evaluation = false;
};

/// Two weights, whose mean gradient is (3, 4).
class OneBadLoss final : public nn::Model {
 public:
  OneBadLoss(Strategy& strategy, Bad bad)
      : bad_{bad}, variables_{strategy.create_variable({.name = "w"}, [] { return Tensor::zeros(DType::f64, {2}); })} {}

  std::string_view name() const override { return "one bad loss"; }
  std::span<const Variable> variables() const override { return variables_; }
  BatchLoss train_shard(const SampleBatch& batch, const nn::Model::ShardPlace& place,
                        const nn::GradientBuffer& gradients) override {
    const auto gradient = gradients.of(variables_.front()).elements<double>();
    const auto samples = static_cast<double>(batch.samples);
    gradient[0] = 3 * samples;
    gradient[1] = 4 * samples;
    return {.loss_sum = place.step == bad_.step && place.first_sample == 0 ? infinity : 1, .correct = 0};
  }
  BatchLoss evaluate_shard(const SampleBatch& batch) override {
    const bool first = batch.labels.view().elements<std::int32_t>()[0] == 0;
    return {.loss_sum = bad_.evaluation && first ? infinity : 1, .correct = 0};
  }

 private:
  Bad bad_;
  std::vector<Variable> variables_;
};

class Steps final : public Observer {
 public:
  explicit Steps(bool wants_norm) : wants_norm_{wants_norm} {}
  bool wants_gradient_norm() const override { return wants_norm_; }
  void on_step(const Step& report) override { reports.push_back(report); }

  std::vector<Observer::Step> reports;

 private:
  bool wants_norm_;
};

/// Counts the norms that are computed.
class CountingKernels final : public detail::UpdateKernels {
 public:
  void sgd(const TensorView& values, const TensorView& gradient, const detail::UpdateStep& step) const override {
    kernels_->sgd(values, gradient, step);
  }
  void momentum(const TensorView&, const TensorView&, const TensorView&, const detail::UpdateStep&,
                double) const override {}
  void adamw(const TensorView&, const TensorView&, const TensorView&, const TensorView&, const detail::UpdateStep&,
             const detail::AdamWMoments&) const override {}
  detail::Answer<double> start_sum_of_squares(std::span<const TensorView> parts) const override {
    ++norms;
    return kernels_->start_sum_of_squares(parts);
  }
  void block_squares(const TensorView&, const TensorView&) const override {}
  mutable int norms = 0;

 private:
  std::unique_ptr<detail::UpdateKernels> kernels_ =
      detail::make_update_kernels(detail::Functions::of_library, Stream::host());
};

/// Gradient descent with these.
class CountedDescent final : public Optimizer {
 public:
  CountedDescent(const LearningRate& learning_rate, std::optional<double> clip_norm,
                 std::shared_ptr<const CountingKernels> kernels)
      : Optimizer{{.learning_rate = learning_rate, .clip_norm = clip_norm}, std::move(kernels)} {}

 protected:
  std::vector<std::string_view> slots() const override { return {}; }
  void update(const Kernels& kernels, const VariableStore::FlatRange& range, const UpdateStep& step) override {
    kernels.sgd(range.values, range.gradients, step);
  }
};

/// Images that are seen to have changed when they are asked so often.
class ChangedImages final : public SampleSource {
 public:
  ChangedImages(const ImageData::Set& images, std::optional<int> unchanged)
      : images_{images, DType::f64}, left_{unchanged} {}
  std::int64_t count() const override { return images_.count(); }
  SampleBatch make_batch(std::int64_t capacity, Stream& stream) const override {
    return images_.make_batch(capacity, stream);
  }
  void fill(std::span<const std::int64_t> samples, SampleBatch& batch) const override { images_.fill(samples, batch); }
  void require_unchanged() const override {
    if (left_ && (*left_)-- <= 0) throw ConfigError{"FILE: has changed"};
  }

 private:
  ImageSamples images_;
  mutable std::optional<int> left_;
};

/// Four shards of two samples in each of three steps. The learning rate is 0.25 in step 1 and 0.5 from then on.
struct Training {
  Bad bad = {};
  FitOptions::OnDivergence on_divergence = FitOptions::OnDivergence::stop;
  std::optional<double> clip_norm = {};
  bool wants_norm = false;
  std::uint64_t seed = 1;
  std::optional<int> unchanged = {};  ///< how often the data are found to be so

  std::vector<Observer::Step> reports = {};
  int norms = 0;

  void operator()(Strategy& strategy) {
    ImageData data;
    for (ImageData::Set* set : {&data.train, &data.test}) {
      set->rows = set->columns = 1;
      for (std::uint8_t i = 0; i < 8; ++i) {
        set->pixels.push_back(i);
        set->labels.push_back(i);
      }
    }
    const ChangedImages train{data.train, unchanged}, test{data.test, std::nullopt};
    OneBadLoss model{strategy, bad};
    const auto kernels = std::make_shared<CountingKernels>();
    CountedDescent sgd{LearningRate{{.peak = 0.5, .warmup_steps = 1}}, clip_norm, kernels};
    Steps steps{wants_norm};
    try {
      fit(strategy, model, sgd, {train, test},
          {.global_batch = 8, .steps = 3, .seed = seed, .shards = 4, .on_divergence = on_divergence}, steps);
    } catch (...) {
      reports = steps.reports;
      throw;
    }
    reports = steps.reports;
    norms = kernels->norms;
  }
};

/// The training on one rank.
Training trained(Training training) {
  const auto group = make_local_group();
  Strategy strategy = strategy_on(*group);
  training(strategy);
  return training;
}

}  // namespace

TEST_CASE("a loss that is no number ends the training on every rank, in the same words") {
  const std::string advice = "; a lower learning rate, a warm-up or a clipped norm may help";
  for (const int ranks : {1, 2, 4}) {
    CAPTURE(ranks);
    std::vector<std::size_t> steps(static_cast<std::size_t>(ranks));
    const auto outcome_with = [&](Bad bad) {
      return outcome_of({.ranks = ranks}, [&](Strategy& strategy, int rank) {
        Training training{.bad = bad};
        try {
          training(strategy);
        } catch (...) {
          steps[static_cast<std::size_t>(rank)] = training.reports.size();
          throw;
        }
      });
    };
    const SimOutcome in_step = outcome_with({.step = 1}), in_evaluation = outcome_with({.evaluation = true});
    CHECK(in_step.is<DivergenceError>());
    for (int rank = 0; rank < ranks; ++rank) {
      CHECK(in_step.is<DivergenceError>(rank));
      CHECK(in_step.what(rank) ==
            "the training has diverged: the loss of step 2 is inf, with learning rate 0.5 and gradient norm 5" +
                advice);
      CHECK(
          in_evaluation.what(rank) ==
          "the training has diverged: the test loss after step 1 is inf, with learning rate 0.25 and gradient norm 5" +
              advice);
    }
    CHECK(steps == std::vector<std::size_t>(static_cast<std::size_t>(ranks), 1));
  }
}

TEST_CASE("a training that diverges says whether its data have changed") {
  const SimOutcome changed = outcome_of({.ranks = 2}, [&](Strategy& strategy, int) {
    Training{.bad = {.step = 1}, .unchanged = 2}(strategy);  // at the ends of the epochs that are steps 1 and 2
  });
  for (const int rank : {0, 1}) {
    CHECK(changed.is<DivergenceError>(rank));
    CHECK_THAT(changed.what(rank),
               Catch::EndsWith("may help; its data have changed since it began: FILE: has changed"));
  }
  // On one rank alone, it is the failure of this rank.
  const SimOutcome on_one = outcome_of({.ranks = 2}, [&](Strategy& strategy, int rank) {
    Training{.unchanged = rank == 1 ? std::optional{1} : std::nullopt}(strategy);
  });
  CHECK(on_one.is<ConfigError>(1));
  CHECK(on_one.is<PeerError>(0));
}

TEST_CASE("the step that diverges is reported, and the run goes on if that is chosen") {
  const QuietLog quiet;
  Training stops{.bad = {.step = 1}};
  const auto group = make_local_group();
  Strategy strategy = strategy_on(*group);
  CHECK_THROWS_AS(stops(strategy), DivergenceError);
  REQUIRE(stops.reports.size() == 2);
  CHECK(stops.reports.back().loss == infinity);

  const Training goes_on =
      trained({.bad = {.step = 1, .evaluation = true}, .on_divergence = FitOptions::OnDivergence::proceed});
  REQUIRE(goes_on.reports.size() == 3);
  CHECK(goes_on.reports[1].loss == infinity);
  CHECK(goes_on.reports[2].loss == 0.5);
}

TEST_CASE("ranks that differ in an option do not train, and are told its values") {
  const auto of_two = [](const Training& other) {
    return outcome_of({.ranks = 2}, [&](Strategy& strategy, int rank) {
      Training training = rank == 0 ? Training{} : other;
      training(strategy);
    });
  };
  CHECK(of_two({.on_divergence = FitOptions::OnDivergence::proceed}).is<MismatchError>());
  const SimOutcome seeds = of_two({.seed = 2});
  CHECK(seeds.is<MismatchError>());
  CHECK_THAT(seeds.line, Catch::Contains("seed 1, batch 8") && Catch::Contains("seed 2, batch 8"));
}

TEST_CASE("the norm of the gradient is computed once a step where it is clipped or wanted, and not otherwise") {
  CHECK(trained({}).norms == 0);
  CHECK(trained({.wants_norm = true}).norms == 3);
  CHECK(trained({.clip_norm = 1}).norms == 3);
  const Training both = trained({.clip_norm = 1, .wants_norm = true});
  CHECK(both.norms == 3);
  REQUIRE(both.reports.size() == 3);
  CHECK(both.reports[0].gradient_norm == 5);  // before clipping
  CHECK(both.reports[0].learning_rate == 0.25);
  CHECK(both.reports[1].learning_rate == 0.5);
  CHECK_FALSE(trained({}).reports[0].gradient_norm);
}
