// Who holds up the others: reports about where the time of the ranks went, in the virtual time of simulated ranks.
#include <chrono>
#include <cmath>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <catch2/catch.hpp>
#include <fmt/format.h>

#include <lockstep/job/sim/sim.hpp>
#include <lockstep/sync/optim/sgd.hpp>

#include "fit_models.hpp"
#include "job/sim/virtual_time.hpp"
#include "models/fit/injected_fault.hpp"
#include "models/fit/parts_report.hpp"
#include "support/quiet_log.hpp"
#include "sync/strategy/inside.hpp"

using namespace lockstep;
using namespace lockstep::test;
using namespace std::chrono_literals;

namespace {

using Part = BusyClock::Part;
using std::chrono::nanoseconds;

constexpr std::int64_t paced_batch = 16;
constexpr int paced_shards = 8;

/// How long a sample takes in each part.
struct Pace {
  nanoseconds data = 10ms, forward = 20ms, backward = 40ms;
};

/// Its passes take virtual time.
class PacedModel final : public nn::Model {
 public:
  PacedModel(Strategy& strategy, const Pace& pace)
      : pace_{pace},
        variables_{strategy.create_variable({.name = "w"}, [] { return Tensor::zeros(DType::f64, {1}); })} {}

  std::string_view name() const override { return "paced"; }
  std::span<const Variable> variables() const override { return variables_; }
  BatchLoss train_shard(const SampleBatch& shard, const nn::Model::ShardPlace&,
                        const nn::GradientBuffer& gradients) override {
    begin(Pass::forward);
    sim::sleep(shard.samples * pace_.forward);
    begin(Pass::backward);
    sim::sleep(shard.samples * pace_.backward);
    gradients.of(variables_.front()).elements<double>()[0] = 1;
    return {.loss_sum = 1};
  }
  BatchLoss evaluate_shard(const SampleBatch& shard) override {
    sim::sleep(shard.samples * pace_.forward);
    return {.loss_sum = 1};
  }

 private:
  Pace pace_;
  std::vector<Variable> variables_;
};

class PacedSamples final : public SampleSource {
 public:
  PacedSamples(std::int64_t count, nanoseconds pace) : count_{count}, pace_{pace} {}

  std::int64_t count() const override { return count_; }
  SampleBatch make_batch(std::int64_t capacity, Stream& stream) const override {
    return lockstep::make_batch(capacity, 1, DType::f64, stream);
  }
  void fill(std::span<const std::int64_t> samples, SampleBatch& shard) const override {
    shard.samples = std::ssize(samples);
    sim::sleep(shard.samples * pace_);
  }

 private:
  std::int64_t count_;
  nanoseconds pace_;
};

/// Keeps what it is told.
class PartsReports final : public Observer {
 public:
  void on_step(const Step& report) override {
    text += fmt::format("step {}, ", report.step);
    CHECK(report.batch == paced_batch);
    sim::sleep(on_each_step);
  }
  void on_evaluation(const Evaluation& report) override { text += fmt::format("evaluation {}, ", report.step); }
  void on_step_end(const State& state) override {
    if (state.steps == wait_after) sim::sleep(wait);
  }
  void on_parts(const Parts& report) override {
    text += fmt::format("{} parts {}, ", report.steps, report.step);
    all.push_back(report);
  }

  nanoseconds on_each_step{}, wait{};
  std::int64_t wait_after = 0;
  std::string text;
  std::vector<Parts> all;
  Parts whole;
};

struct PacedRun {
  FitOptions options = {.global_batch = paced_batch, .steps = 10, .shards = paced_shards, .evaluate_every = 100};
  std::function<Pace(int rank)> pace = [](int) { return Pace{}; };
  std::optional<InjectedFault> fault = {};
  std::function<void(PartsReports& reports, int rank)> change = [](PartsReports&, int) {};
};

/// What rank 0 was told, which every rank was.
PartsReports reports_of(int ranks, const PacedRun& run) {
  const test::QuietLog quiet;
  std::vector<PartsReports> reports(static_cast<std::size_t>(ranks));
  sim::run({.ranks = ranks, .ranks_per_node = (ranks + 1) / 2, .longest_latency = 1us},
           [&](Strategy& strategy, int rank) {
             const Pace pace = run.pace(rank);
             PacedModel model{strategy, pace};
             Sgd sgd{{.learning_rate = 1}};
             const PacedSamples train{1000, pace.data}, test{16, pace.data};
             PartsReports& mine = reports[static_cast<std::size_t>(rank)];
             run.change(mine, rank);
             mine.whole = fit_with_fault(strategy, model, sgd, {train, test}, run.options, mine, run.fault).parts;
           });
  for (const PartsReports& each : reports) {
    CHECK(each.text == reports.front().text);
    REQUIRE(each.all.size() == reports.front().all.size());
    for (std::size_t i = 0; i < each.all.size(); ++i)
      for (std::size_t rank = 0; rank < each.all[i].replicas.size(); ++rank) {
        const Observer::Parts::Replica &here = each.all[i].replicas[rank], &there = reports[0].all[i].replicas[rank];
        CHECK((here.late == there.late && here.waiting == there.waiting && here.mostly == there.mostly));
      }
  }
  return reports.front();
}

double busy_seconds(const Observer::Parts::Replica& each) {
  return each.data + each.forward + each.backward + each.optimizer + each.checkpoint + each.evaluation + each.other;
}

/// Requires that each rank is late by the share that it delays the others by, and in that part: the difference of its
/// own time from the fastest rank's, of a run that takes as long as the slowest one.
void check_blames_of_parts(int ranks, const PacedRun& run, const std::vector<double>& own,
                           const std::vector<std::string>& mostly) {
  const PartsReports reports = reports_of(ranks, run);
  REQUIRE(reports.all.size() == 1);
  const Observer::Parts& report = reports.all.front();
  const double least = *std::ranges::min_element(own), most = *std::ranges::max_element(own);
  CHECK(report.seconds == Approx(most).epsilon(0.03));
  for (std::size_t rank = 0; rank < own.size(); ++rank) {
    INFO("rank " << rank << " of " << ranks);
    const Observer::Parts::Replica& each = report.replicas[rank];
    CHECK(each.replica == static_cast<int>(rank));
    CHECK((each.name == fmt::format("worker:{}", rank) && each.host == "sim"));
    CHECK(std::abs(each.late - (own[rank] - least) / most) < 0.01);
    if (own[rank] > least) CHECK(each.mostly == mostly[rank]);
    CHECK(busy_seconds(each) + each.waiting == Approx(report.seconds).epsilon(0.001));
  }
}

/// The seconds that a rank is busy, at its pace.
double busy_at(const Pace& pace, int ranks, std::int64_t steps = 10) {
  const double samples = static_cast<double>(paced_batch) / ranks;
  const double evaluation = 16.0 / ranks * std::chrono::duration<double>{pace.data + pace.forward}.count();
  return static_cast<double>(steps) * samples *
             std::chrono::duration<double>{pace.data + pace.forward + pace.backward}.count() +
         evaluation;
}

/// Those of all ranks, some of which have another pace.
std::vector<double> busy_of_all(int ranks, const std::function<Pace(int)>& pace) {
  std::vector<double> all;
  for (int rank = 0; rank < ranks; ++rank) all.push_back(busy_at(pace(rank), ranks));
  return all;
}

/// Requires that ranks of these paces are blamed for what they cost.
void check_paces(int ranks, const std::function<Pace(int)>& pace, const std::vector<std::string>& mostly) {
  check_blames_of_parts(ranks, {.pace = pace}, busy_of_all(ranks, pace), mostly);
}

}  // namespace

TEST_CASE("a rank that is slow by request is blamed for its share, and for its part") {
  const int ranks = GENERATE(2, 4, 8);
  const auto check = [&](const std::string& fault, const Pace& as_if, const std::string& mostly) {
    INFO(fault);
    std::vector<double> own = busy_of_all(ranks, [](int) { return Pace{}; });
    own[1] = busy_at(as_if, ranks);
    // An evaluation is another part.
    own[1] -= busy_at(as_if, ranks, 0) - busy_at({}, ranks, 0);
    check_blames_of_parts(ranks, {.fault = InjectedFault::parse(fault, ranks)}, own,
                          std::vector<std::string>(static_cast<std::size_t>(ranks), mostly));
  };
  check("slow:1:2", {.forward = 40ms, .backward = 80ms}, "backward");
  check("slow:1:1.1:data", {.data = 11ms}, "data");
  check("slow:1:4:forward", {.forward = 80ms}, "forward");
}

TEST_CASE("two slow ranks are blamed, each for its own share") {
  for (const int ranks : {4, 8})
    check_paces(ranks,
                [](int rank) {
                  return Pace{.data = rank == 1 ? 60ms : 10ms, .forward = 20ms, .backward = rank == 3 ? 60ms : 40ms};
                },
                {"", "data", "", "backward", "", "", "", ""});
}

TEST_CASE("all ranks of a slow host are blamed, and of equal ones none") {
  for (const int ranks : {2, 4, 8})
    check_paces(
        ranks,
        [&](int rank) { return rank < ranks / 2 ? Pace{} : Pace{.data = 12ms, .forward = 24ms, .backward = 48ms}; },
        std::vector<std::string>(static_cast<std::size_t>(ranks), "backward"));
  const PartsReports equal = reports_of(4, {});
  for (const Observer::Parts::Replica& each : equal.all.front().replicas) CHECK(each.late < 0.001);
}

TEST_CASE("what the chief does alone is its own time, also after the last step") {
  const PartsReports steps = reports_of(4, {.change = [](PartsReports& reports, int rank) {
                                          if (rank == 0) reports.on_each_step = 10ms;
                                        }});
  const PartsReports end = reports_of(4, {.change = [](PartsReports& reports, int rank) {
                                        reports.wait_after = 10;
                                        if (rank == 0) reports.wait = 100ms;
                                      }});
  for (const PartsReports* each : {&steps, &end}) {
    const Observer::Parts::Replica& chief = each->all.front().replicas.front();
    CHECK(chief.mostly == "other");
    CHECK(chief.late == Approx(0.1 / (0.1 + busy_at({}, 4))).epsilon(0.05));
    for (std::size_t rank = 1; rank < 4; ++rank) CHECK(each->all.front().replicas[rank].late < 0.001);
  }
}

TEST_CASE("reports come after evaluations, attestations and the end, and cover the steps since the last one") {
  PacedRun run;
  run.options.evaluate_every = 4;
  run.options.attest_every = 3;
  CHECK(
      reports_of(2, run).text ==
      "step 1, step 2, step 3, 3 parts 3, step 4, evaluation 4, 1 parts 4, step 5, step 6, 2 parts 6, step 7, step 8, "
      "evaluation 8, 2 parts 8, step 9, 1 parts 9, step 10, evaluation 10, 1 parts 10, ");
  run.options.start = Observer::State{.steps = 7};
  CHECK(reports_of(2, run).text ==
        "step 8, evaluation 8, 1 parts 8, step 9, 1 parts 9, step 10, evaluation 10, 1 parts 10, ");
  const PartsReports some = reports_of(2, run);
  CHECK((some.whole.step == 10 && some.whole.steps == 3 && some.whole.replicas.size() == 2));
  double backward = 0;
  for (const Observer::Parts& each : some.all) backward += each.replicas[1].backward;
  CHECK(some.whole.replicas[1].backward == Approx(backward));
  run.options.start = Observer::State{.steps = 10};
  CHECK(reports_of(2, run).text.empty());
  CHECK(reports_of(2, run).whole.replicas.empty());
  const PartsReports alone = reports_of(1, {});
  CHECK((alone.all.front().replicas.front().late == 0 && alone.all.front().replicas.front().mostly.empty()));
}

TEST_CASE("a step of a model that takes its shards at once looks at the clock a few times, however many they are") {
  int looks = 0;
  const auto looks_of = [&](std::int64_t steps, int shards) {
    const auto group = make_local_group();
    group->job().set_time({.now = [&] {
      ++looks;
      return BusyClock::Time{};
    }});
    Strategy strategy = strategy_on(*group);
    ScriptedModel model{strategy, 3, column_sums};
    Sgd sgd{{.learning_rate = 1}};
    const ImageData data = images(8);
    const ImageSamples train{data.train, DType::f64}, test{data.test, DType::f64};
    Observer nobody;
    looks = 0;
    (void)fit(strategy, model, sgd, {train, test},
              {.global_batch = 8, .steps = steps, .shards = shards, .evaluate_every = 100}, nobody);
    return looks;
  };
  // For four waits, four parts, and none twice.
  for (const int shards : {1, 8}) CHECK(looks_of(20, shards) - looks_of(10, shards) <= 10 * 12);
}

TEST_CASE("a report says for how long a rank had no processor since the last one") {
  const auto group = make_local_group();
  nanoseconds run_delay = 7s;
  group->job().set_time({.run_delay = [&] { return run_delay += 250ms; }});
  Strategy strategy = strategy_on(*group);
  ScriptedModel model{strategy, 3, column_sums};
  Sgd sgd{{.learning_rate = 1}};
  const ImageData data = images(8);
  const ImageSamples train{data.train, DType::f64}, test{data.test, DType::f64};
  struct : Observer {
    void on_parts(const Parts& report) override { queued.push_back(report.replicas.front().queued); }
    std::vector<double> queued;
  } observer;
  const Observer::Parts whole =
      fit(strategy, model, sgd, {train, test}, {.global_batch = 8, .steps = 4, .evaluate_every = 2}, observer).parts;
  CHECK(observer.queued == std::vector{0.25, 0.25});
  CHECK(whole.replicas.front().queued == 0.5);
}

TEST_CASE("the line about late replicas names one, or all, once there is enough to tell by") {
  const auto report = [](const std::vector<int>& busy, std::int64_t steps, nanoseconds percent) {
    std::vector<BusyClock::Times> times;
    for (const int each : busy) {
      BusyClock::Times& replica = times.emplace_back();
      replica.busy[static_cast<std::size_t>(each % 2 == 0 ? Part::data : Part::checkpoint)] = each * percent;
      replica.waiting = (100 - each) * percent;
    }
    Observer::Parts parts = parts_of(
        times, std::vector<Job::Residence>{{"worker:0", "a"}, {"worker:1", "a"}, {"worker:2", "b"}, {"worker:3", "b"}});
    parts.steps = steps;
    return parts;
  };
  const std::vector<std::string> names{"replica 0 (worker:0, host a)", "replica 1 (worker:1, host a)",
                                       "replica 2 (worker:2, host b)", "replica 3 (worker:3, host b)"};
  const auto line = [&](const std::vector<int>& busy, std::int64_t steps = 10, nanoseconds percent = 50ms) {
    const Observer::Parts parts = report(busy, steps, percent);
    const std::vector<int> late = late_replicas(parts);
    return late.empty() ? "" : line_about(late, parts, names);
  };
  CHECK(line({50, 50, 50, 50}).empty());
  CHECK(line({50, 51, 52, 55}).empty());
  CHECK(line({50, 50, 50, 61}) ==
        "replica 3 (worker:3, host b): the others waited 11% of the time for it, mostly in checkpoint");
  CHECK(line({50, 50, 50, 61}, 9).empty());
  CHECK(line({50, 50, 50, 61}, 10, 49ms).empty());
  CHECK(line({50, 50, 72, 61}) == "replicas 2, 3 (host b): the others waited 22% of the time for them, mostly in data");
  CHECK(line({72, 50, 61, 50}) == "replicas 0, 2: the others waited 22% of the time for them, mostly in data");
}
