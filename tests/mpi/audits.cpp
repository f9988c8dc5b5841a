// Training in which one replica computes or reads something else than the others would: named by the next audit.
#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include <catch2/catch.hpp>

#include <lockstep/core/base/error.hpp>
#include <lockstep/models/fit/fit.hpp>
#include <lockstep/sync/checkpoint/weights.hpp>
#include <lockstep/sync/optim/adamw.hpp>

#include "core/control/meeting_point.hpp"
#include "models/fit/injected_fault.hpp"
#include "models/input/samples.hpp"
#include "models/input/text_sets.hpp"
#include "models/input/tokens.hpp"
#include "models/nn/convnet.hpp"
#include "models/nn/gpt.hpp"
#include "models/nn/mlp.hpp"
#include "models/ops/image_kernels.hpp"
#include "support/quiet_log.hpp"
#include "support/ranks.hpp"
#include "sync/group/local_group.hpp"
#include "sync/group/replica_group.hpp"
#include "sync/strategy/audit_schedule.hpp"
#include "sync/strategy/inside.hpp"

using namespace lockstep;
using namespace lockstep::test;

namespace {

constexpr std::uint64_t audit_seed = 11;

ImageData::Set audited_images() {
  const RandomStream random{audit_seed, RandomStream::Purpose::simulation, 1};
  ImageData::Set set;
  set.rows = set.columns = 6;
  for (std::uint64_t image = 0; image < 90; ++image) {
    set.labels.push_back(static_cast<std::uint8_t>(image % 3));
    for (std::uint64_t pixel = 0; pixel < 36; ++pixel)
      set.pixels.push_back(static_cast<std::uint8_t>(random.below(256, 36 * image + pixel)));
  }
  return set;
}

TextSet audited_text() {
  const RandomStream random{audit_seed, RandomStream::Purpose::simulation, 2};
  std::vector<std::uint8_t> letters;
  for (std::uint64_t i = 0; i < 400; ++i) letters.push_back(static_cast<std::uint8_t>('a' + random.below(4, i)));
  return {tokens_of_text(std::move(letters)), 5};
}

enum class Audited { mlp, gpt, convnet, joint_convnet };

struct AuditedRun {
  Audited model = Audited::mlp;
  std::optional<std::int64_t> audit_every = 3;
  std::optional<InjectedFault> fault = {};
  int shards_of_rank = 2;
  int accumulate = 1;
  int threads = 1;
  int prefetch = 0;
  std::int64_t steps = 12;
  nn::Model::Precision precision = nn::Model::Precision::full;
};

/// What a run told.
class AuditTold final : public Observer {
 public:
  explicit AuditTold(const nn::Model& model) : model_{model} {}

  void on_step(const Step& report) override {
    steps = report.step;
    weights = weights_digest(model_.variables());
  }
  void on_evaluation(const Evaluation& report) override { test_loss = report.loss; }
  void on_audit(const AuditError& error) override {
    found = error.finding();
    weights_then = weights_digest(model_.variables());
  }

  std::int64_t steps = 0;     ///< that were made
  std::uint64_t weights = 0;  ///< after the last of them
  double test_loss = 0;       ///< with the moving averages, if there are any
  std::optional<AuditError::Finding> found;
  std::uint64_t weights_then = 0;
  std::string words;

 private:
  const nn::Model& model_;
};

std::unique_ptr<nn::Model> make_audited(Strategy& strategy, const AuditedRun& run) {
  const std::shared_ptr<const ops::Kernels> kernels =
      ops::make_kernels(ops::Kernels::Choice::automatic, {}, strategy.stream());
  switch (run.model) {
    case Audited::mlp:
      return std::make_unique<nn::Mlp>(
          strategy,
          nn::MlpOptions{.inputs = 36, .hidden = {8, 5}, .classes = 3, .seed = audit_seed, .precision = run.precision},
          kernels);
    case Audited::gpt:
      return std::make_unique<nn::Gpt>(
          strategy,
          nn::GptOptions{
              .layers = 2, .heads = 2, .width = 8, .context = 5, .seed = audit_seed, .precision = run.precision},
          kernels);
    case Audited::convnet:
    case Audited::joint_convnet: break;
  }
  using Norm = nn::ConvnetOptions::BatchNorm;
  return std::make_unique<nn::Convnet>(
      strategy,
      nn::ConvnetOptions{.height = 6,
                         .width = 6,
                         .filters = {2, 3},
                         .hidden = 5,
                         .classes = 3,
                         .batch_norm = run.model == Audited::convnet ? Norm::per_shard : Norm::whole_batch,
                         .dropout = 0.25,
                         .seed = audit_seed},
      kernels);
}

/// COLL. What a training told, the same on every rank.
AuditTold train_audited(const AuditedRun& run) {
  const QuietLog quiet;
  Strategy strategy = runtime().make_strategy();
  const auto model = make_audited(strategy, run);
  static const ImageData::Set pictures = audited_images();
  static const TextSet letters = audited_text();
  const ImageSamples image_samples{pictures, DType::f32};
  const TextSamples text_samples{letters};
  const SampleSource& samples = run.model == Audited::gpt ? static_cast<const SampleSource&>(text_samples)
                                                          : static_cast<const SampleSource&>(image_samples);
  AdamW optimizer{{.learning_rate = 0.01}};
  FitOptions options{.global_batch = 5 * ranks() * run.shards_of_rank + 1,
                     .steps = run.steps,
                     .seed = audit_seed,
                     .shards = ranks() * run.shards_of_rank,
                     .accumulate = run.accumulate,
                     .threads = run.threads,
                     .prefetch = run.prefetch,
                     .evaluate_every = 1000};
  options.evaluation_samples = 5;
  options.audit_every = run.audit_every;
  AuditTold told{*model};
  told.words = message_of<AuditError>([&] {
    fit_with_fault(strategy, *model, optimizer, {samples, samples}, options, told, run.fault);
  });
  CHECK(strategy.same_on_all(told.words).value() == told.words);
  return told;
}

InjectedFault miscomputing(int rank, std::int64_t step, bool always = true) {
  return {.kind = InjectedFault::Kind::miscomputes, .rank = rank, .step = step, .always = always};
}

/// `found_in` is a step, from 1.
void check_named(const AuditedRun& run, std::int64_t found_in) {
  CAPTURE(static_cast<int>(run.model), run.accumulate, run.threads, run.fault->rank);
  const AuditTold told = train_audited(run);
  REQUIRE(told.found);
  CHECK(told.found->step == found_in);
  CHECK(told.steps == found_in - 1);
  if (found_in > 1) CHECK(told.weights_then == told.weights);
  const bool can_be_told = ranks() != 2 || !run.fault->always;
  CHECK(told.found->blamed == (can_be_told ? std::vector{run.fault->rank} : std::vector<int>{}));
}

constexpr Audited audited_models[]{Audited::mlp, Audited::gpt, Audited::convnet};

/// Elsewhere one thread computes all shards, however many are asked for.
bool may_have_threads() {
  Strategy& strategy = runtime().strategy();
  return strategy.stream().kind() == DeviceKind::cpu && inside(strategy).group().job().may_start_threads();
}

/// A step in which the shard that is audited is the one that `fault` strikes.
std::int64_t struck_and_audited(const AuditedRun& run, std::int64_t first) {
  for (std::int64_t step = first;; ++step) {
    const auto turn = AuditSchedule{*run.audit_every, audit_seed, ranks(), run.shards_of_rank}.in(step);
    const InjectedFault fault = miscomputing(last(), step, false);
    if (turn && fault.miscomputes(last(), step, turn->shard, run.shards_of_rank)) return step;
  }
}

}  // namespace

TEST_CASE("a replica that computes wrong from some step on is named by the next audit, and that step is not applied") {
  if (ranks() == 1) return;  // it gets the same wrong result twice
  for (const Audited model : audited_models) check_named({.model = model, .fault = miscomputing(last(), 1)}, 3);
  check_named({.fault = miscomputing(0, 3), .accumulate = 2}, 6);
  check_named({.model = Audited::gpt, .audit_every = 1, .fault = miscomputing(last(), 2), .accumulate = 2}, 3);
}

TEST_CASE("a wrong bit of one shard of one step is found if that shard is audited, and otherwise not") {
  for (const Audited model : audited_models) {
    AuditedRun run{.model = model, .shards_of_rank = 4};
    const std::int64_t step = struck_and_audited(run, 1);
    run.fault = miscomputing(last(), step, false);
    run.steps = step + 1;
    check_named(run, step + 1);
    run.fault = miscomputing(last(), step - 1, false);  // a step without an audit
    CHECK_FALSE(train_audited(run).found);
  }
}

TEST_CASE("the shards of several threads, of micro-batches and of batches that are loaded ahead are audited") {
  AuditedRun run{.audit_every = 2, .shards_of_rank = 4, .accumulate = 1, .threads = 2, .prefetch = 2};
  const std::int64_t step = struck_and_audited(run, 0);
  run.fault = miscomputing(last(), step, false);
  run.steps = step + 2;
  check_named(run, step + 1);
  run.accumulate = 3;
  check_named(run, step + 1);
}

TEST_CASE("a replica that reads other samples is named before its kernels are") {
  if (ranks() == 1) return;
  for (const Audited model : audited_models) {
    const InjectedFault fault{.kind = InjectedFault::Kind::misreads, .rank = last(), .step = 2};
    const AuditTold told = train_audited({.model = model, .fault = fault});
    REQUIRE(told.found);
    CHECK(told.found->value == "samples");
    CHECK(told.found->step == 3);
    CHECK(told.found->blamed == (ranks() > 2 ? std::vector{last()} : std::vector<int>{}));
  }
}

TEST_CASE("audits change no bit, and cost no agreement") {
  MeetingPoint& meeting = inside(runtime().strategy()).group().meeting();
  for (const Audited model : audited_models) {
    for (const int accumulate : {1, 2}) {
      for (const int threads : {1, 2}) {
        if (threads > 1 && !may_have_threads()) continue;
        const auto digest = [&](std::optional<std::int64_t> every) {
          const auto before = meeting.meetings();
          const AuditTold told = train_audited({.model = model,
                                                .audit_every = every,
                                                .shards_of_rank = 4,
                                                .accumulate = accumulate,
                                                .threads = threads,
                                                .steps = 5});
          CAPTURE(static_cast<int>(model), accumulate, threads);
          CHECK(told.words == "");
          CHECK(told.steps == 5);
          return std::tuple{told.weights, told.test_loss, meeting.meetings() - before};
        };
        CHECK(digest(1) == digest(std::nullopt));
      }
    }
  }
  for (const Audited model : {Audited::mlp, Audited::gpt}) {
    const AuditTold told = train_audited({.model = model,
                                          .audit_every = 1,
                                          .shards_of_rank = 4,
                                          .threads = 2,
                                          .steps = 5,
                                          .precision = nn::Model::Precision::bf16});
    CHECK(told.words == "");
    CHECK(told.steps == 5);
  }
}

TEST_CASE("the digests of a recorded step do not depend on the number of ranks") {
  if (runtime().strategy().stream().kind() != DeviceKind::cpu) return;  // a group of one would be on the host
  class Digested final : public Observer {
   public:
    void on_digests(const Digests& digests) override {
      steps.push_back(digests.step);
      all.insert(all.end(), digests.of_shards.begin(), digests.of_shards.end());
      names = {digests.values.begin(), digests.values.end()};
    }
    std::vector<std::int64_t> steps;
    std::vector<std::uint64_t> all;
    std::vector<std::string> names;
  };
  int shards = ranks();
  while (shards < 8) shards *= 2;
  const ImageData::Set pictures = audited_images();
  const TextSet letters = audited_text();
  const ImageSamples image_samples{pictures, DType::f32};
  const TextSamples text_samples{letters};
  for (const Audited model : {Audited::mlp, Audited::gpt, Audited::convnet, Audited::joint_convnet}) {
    const SampleSource& samples = model == Audited::gpt ? static_cast<const SampleSource&>(text_samples)
                                                        : static_cast<const SampleSource&>(image_samples);
    for (const int accumulate : {1, 2}) {
      const auto digests = [&](Strategy& strategy, int threads) {
        const QuietLog quiet;
        const auto made = make_audited(strategy, {.model = model});
        AdamW optimizer{{.learning_rate = 0.01}};
        FitOptions options{
            .global_batch = 21, .steps = 5, .seed = audit_seed, .shards = shards, .accumulate = accumulate};
        options.threads = threads;
        options.record_every = 2;
        Digested digested;
        fit(strategy, *made, optimizer, {samples, samples}, options, digested);
        CHECK(digested.steps == std::vector<std::int64_t>{2, 4, 5});
        CHECK(digested.all.size() == 3 * digested.names.size() * static_cast<std::size_t>(shards));
        CHECK(digested.names.front() == "samples");
        CHECK(digested.names.back() == "loss");
        return digested.all;
      };
      CAPTURE(static_cast<int>(model), accumulate);
      Strategy strategy = runtime().make_strategy();
      const auto group = make_local_group();
      Strategy alone = strategy_on(*group);
      CHECK(digests(strategy, 2) == digests(alone, 1));
    }
  }
}

TEST_CASE("every shard of every rank is audited once in as many audits as a rank has shards, by each other rank") {
  const std::int64_t shards = 4;
  const AuditSchedule schedule{5, audit_seed, ranks(), shards};
  std::vector<std::vector<int>> auditors(static_cast<std::size_t>(shards));
  for (std::int64_t step = 0; step < 5 * shards * std::max(ranks() - 1, 1); ++step) {
    const auto turn = schedule.in(step);
    REQUIRE(turn.has_value() == ((step + 1) % 5 == 0));
    if (turn) auditors.at(static_cast<std::size_t>(turn->shard)).push_back(turn->ahead);
  }
  for (std::vector<int>& ahead : auditors) {
    std::ranges::sort(ahead);
    std::vector<int> expected;
    for (int each = std::min(1, last()); each <= last(); ++each) expected.push_back(each);
    CHECK(ahead == expected);
  }
}

TEST_CASE("replicas that hold other weights are told apart from one that computes wrong") {
  if (ranks() == 1) return;
  const InjectedFault flip{.kind = InjectedFault::Kind::flips, .rank = last(), .step = 1};
  const auto drift = [&] {
    const QuietLog quiet;
    Strategy strategy = runtime().make_strategy();
    const auto model = make_audited(strategy, {});
    const ImageData::Set set = audited_images();
    const ImageSamples samples{set, DType::f32};
    AdamW optimizer{{.learning_rate = 0.01}};
    FitOptions options{.global_batch = 4 * ranks(), .steps = 4, .shards = ranks()};
    options.audit_every = 2;
    AuditTold told{*model};
    fit_with_fault(strategy, *model, optimizer, {samples, samples}, options, told, flip);
  };
  CHECK_THAT(message_of<DriftError>(drift), Catch::Contains("variable 'dense_"));
}

TEST_CASE("ranks that audit every so many steps, and others every so many more, are a mismatch") {
  if (ranks() == 1) return;
  CHECK_THAT(mismatch_of([] { (void)train_audited({.audit_every = odd_one() ? 2 : 3}); }),
             Catch::Contains("audit every 2") && Catch::Contains("audit every 3"));
  expect_in_step();
}

TEST_CASE("what cannot be audited is refused") {
  CHECK_THROWS_AS(train_audited({.audit_every = 0}), InvalidArgument);
  Strategy strategy = runtime().make_strategy();
  nn::Convnet joint{strategy,
                    {.height = 6,
                     .width = 6,
                     .filters = {2, 3},
                     .hidden = 5,
                     .classes = 3,
                     .batch_norm = nn::ConvnetOptions::BatchNorm::whole_batch},
                    ops::make_kernels(ops::Kernels::Choice::automatic, {}, strategy.stream())};
  const ImageData::Set set = audited_images();
  const ImageSamples samples{set, DType::f32};
  AdamW optimizer{{.learning_rate = 0.01}};
  FitOptions options{.global_batch = 4 * ranks(), .shards = ranks()};
  options.audit_every = 2;
  Observer nobody;
  CHECK_THAT(message_of<InvalidArgument>([&] {
               fit(strategy, joint, optimizer, {samples, samples}, options, nobody);
             }),
             Catch::Contains("computes all shards of a step together"));
}
