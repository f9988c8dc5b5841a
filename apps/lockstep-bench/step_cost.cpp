#include "apps/lockstep-bench/step_cost.hpp"

#include <chrono>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>
#include <lockstep/models/fit/fit.hpp>

#include "apps/lockstep-bench/mpi_baseline.hpp"
#include "apps/lockstep-bench/step_statistics.hpp"
#include "apps/lockstep-bench/timing.hpp"
#include "core/comm/communicator.hpp"
#include "core/control/busy_clock.hpp"
#include "core/trace/ring.hpp"
#include "sync/reduce/declared_sums.hpp"

namespace lockstep::bench {
namespace {

using Clock = std::chrono::steady_clock;
using Compare = StepOptions::Compare;

/// Takes turns between blocks of steps with and without what is compared: with, without, without, with, and so on.
class Turns final : public Observer {
 public:
  Turns(Compare compare, std::int64_t steps) : compare_{compare}, steps_{steps} {}

  void on_step(const Step& step) override {
    if (step.step == 1) first_traffic_ = DeclaredSums::last_traffic();
    // The first step allocates memory, and belongs to no block.
    if (step.step > 1 && ++in_block_ == steps_) {
      times_.push_back(std::chrono::duration<double, std::milli>{Clock::now() - since_}.count() /
                       static_cast<double>(steps_));
      in_block_ = 0;
      take_turn(is_with(times_.size()));
    }
    if (in_block_ == 0) since_ = Clock::now();
  }

  static bool is_with(std::size_t block) { return block % 4 == 0 || block % 4 == 3; }

  /// Of the first step, which is with what is compared.
  Work::Traffic first_traffic() const { return first_traffic_; }

  /// Of a mean step of each block, in milliseconds.
  const std::vector<double>& times() const { return times_; }

 private:
  void take_turn(bool with) {
    no_trace_.reset();
    no_parts_.reset();
    no_overlap_.reset();
    if (with) return;
    if (compare_ == Compare::trace) no_trace_.emplace();
    if (compare_ == Compare::parts) no_parts_.emplace();
    if (compare_ == Compare::overlap) no_overlap_.emplace();
  }

  Compare compare_;
  std::int64_t steps_;
  std::int64_t in_block_ = 0;
  Clock::time_point since_;
  std::vector<double> times_;
  std::optional<trace::Ring::Off> no_trace_;
  std::optional<BusyClock::Off> no_parts_;
  std::optional<DeclaredSums::StartLate> no_overlap_;
  Work::Traffic first_traffic_;
};

/// How long each step takes, in milliseconds.
class StepTimes final : public Observer {
 public:
  void on_step(const Step&) override {
    const Clock::time_point now = Clock::now();
    // The first step allocates memory.
    if (since_ != Clock::time_point{})
      times_.push_back(std::chrono::duration<double, std::milli>{now - since_}.count());
    since_ = now;
  }

  /// From the second step on.
  const std::vector<double>& times() const { return times_; }

 private:
  Clock::time_point since_{};
  std::vector<double> times_;
};

/// A ring whose file goes with the process, whatever happens.
std::unique_ptr<trace::Ring> make_ring(const Runtime& runtime) {
  // Not what the library says of TMPDIR: it does not name a folder that is missing.
  const char* const chosen = std::getenv("TMPDIR");
  return std::make_unique<trace::Ring>(trace::Ring::Options{.file = chosen && *chosen ? chosen : "/tmp",
                                                            .name = trace::Ring::Options::Name::none,
                                                            .rank = runtime.rank(),
                                                            .ranks = runtime.size()});
}

std::string name_of_comparison(Compare compare) {
  switch (compare) {
    case Compare::shards: return "shards";
    case Compare::kernels: return "kernels";
    case Compare::trace: return "trace";
    case Compare::parts: return "parts";
    case Compare::audit: return "audit";
    case Compare::ledger: return "ledger";
    case Compare::overlap: return "overlap";
  }
  return {};
}

/// By how much it is more than 1.
double in_percent(double ratio) {
  return (ratio - 1) * 100;
}

/// Nanoseconds of a span without a trace.
double time_of_no_span() {
  constexpr int spans = 1'000'000;
  return microseconds([] {
           for (int i = 0; i < spans; ++i) const trace::Within span{trace::Kind::layer, "dense", 1};
         }) *
         1e3 / spans;
}

/// With and without, of each iteration.
struct Pairs {
  std::vector<double> with, without, ratios;
};

Pairs pairs_of(const std::vector<double>& blocks, std::int64_t warm_up) {
  Pairs pairs;
  for (std::size_t first = 2 * static_cast<std::size_t>(warm_up); first + 1 < blocks.size(); first += 2) {
    const bool with_first = Turns::is_with(first);
    pairs.with.push_back(blocks[with_first ? first : first + 1]);
    pairs.without.push_back(blocks[with_first ? first + 1 : first]);
    pairs.ratios.push_back(pairs.with.back() / pairs.without.back());
  }
  return pairs;
}

/// Of each audit but the first, which allocates memory: its step, and the median of the steps since the audit before.
/// `times` begin with the second step.
Pairs audits_in(const std::vector<double>& times, std::int64_t every, std::int64_t warm_up) {
  Pairs pairs;
  for (auto audited = times.begin() + (warm_up + 2) * every - 2; audited < times.end(); audited += every) {
    pairs.with.push_back(*audited);
    pairs.without.push_back(median({audited - every + 1, audited}));
    pairs.ratios.push_back(pairs.with.back() / pairs.without.back());
    if (times.end() - audited <= every) break;
  }
  return pairs;
}

}  // namespace

void bench_step_cost(Runtime& runtime, const StepOptions& options, const AddRow& add) {
  if (options.iterations < fewest_for_interval)
    throw ConfigError{fmt::format("--iterations {} are too few for an interval of the ratio: expected at least {}",
                                  options.iterations, fewest_for_interval)};
  Strategy& strategy = runtime.strategy();
  const std::int64_t global_batch = global_batch_of(options);
  std::optional<RandomSamples> samples, evaluated;
  int shards = 0;
  strategy.run([&](ReplicaContext&) {
    shards = options.shards.resolve(runtime.size()).shards;
    samples.emplace(options.model, step_batches * global_batch);
    evaluated.emplace(options.model, 1);
  });
  const double no_span = time_of_no_span();
  const std::shared_ptr<const ops::Kernels> kernels =
      ops::make_kernels(ops::Kernels::Choice::automatic, {}, strategy.stream());
  const auto model = make_model(options.model, options.hidden, strategy, kernels, options.precision);
  const auto optimizer = make_optimizer(options.model);
  std::unique_ptr<trace::Ring> ring;
  // It may fail on one rank alone. Made here, so that it holds no spans from before the first step.
  if (options.compare == Compare::trace) strategy.run([&](ReplicaContext&) { ring = make_ring(runtime); });

  const bool audits = options.compare == Compare::audit, records = options.compare == Compare::ledger;
  const std::int64_t iterations = options.warm_up + options.iterations, every = options.steps + 1;
  const std::int64_t steps = audits || records ? (1 + iterations) * every : 1 + 2 * iterations * options.steps;
  FitOptions fit_options{.global_batch = global_batch,
                         .steps = steps,
                         .shards = shards,
                         .threads = options.threads,
                         .evaluate_every = steps,
                         .attest_first = 0};
  if (audits) fit_options.audit_every = every;
  if (records) fit_options.record_every = every;
  Turns turns{options.compare, options.steps};
  StepTimes each;
  Observer& observer = audits || records ? static_cast<Observer&>(each) : turns;
  (void)fit(strategy, *model, *optimizer, {samples->source(), evaluated->source()}, fit_options, observer);

  MpiBaseline mpi;
  const Pairs pairs = audits || records ? audits_in(mpi.mean(each.times()), every, options.warm_up)
                                        : pairs_of(mpi.mean(turns.times()), options.warm_up);
  const Interval ratio = median_interval(pairs.ratios);
  const double step = median(pairs.without);
  constexpr std::size_t digits = 8;
  Row row{{"model", "", std::string{model->name()}, Place::title},
          {"parameters", "", parameters_of(*model), Place::title},
          {"batch", "", global_batch, Place::title},
          {"shards", "", std::int64_t{shards}, Place::title},
          {"compare", "", name_of_comparison(options.compare), Place::column, digits},
          {"without", "ms", step, Place::column, digits},
          {"with", "ms", median(pairs.with), Place::column, digits},
          {"cost", "%", in_percent(ratio.median), Place::column, digits},
          {"low", "%", in_percent(ratio.low), Place::column, digits},
          {"high", "%", in_percent(ratio.high), Place::column, digits}};
  if (audits || records) {
    constexpr double usual = 50;
    row.push_back({"at_50", "%", in_percent(ratio.median) / usual, Place::column, digits});
  }
  if (options.compare == Compare::overlap) {
    const auto [begun, all] = turns.first_traffic();
    const std::vector<double> bytes = mpi.mean({static_cast<double>(begun), static_cast<double>(all)});
    row.push_back({"sent", "B a step", static_cast<std::int64_t>(bytes[1]), Place::column, digits + 2});
    row.push_back({"early", "%", bytes[1] > 0 ? bytes[0] / bytes[1] * 100 : 0, Place::column, digits});
  }
  if (ring) {
    // Half of the steps, and the first.
    const double spans = static_cast<double>(ring->written()) / static_cast<double>((steps + 1) / 2);
    row.push_back({"spans", "a step", spans, Place::column, digits});
    row.push_back({"off", "%", spans * no_span / (step * 1e6) * 100, Place::column, digits});
  }
  add_reductions(row, options.reductions, state_bytes_of(*model), mpi);
  add(row);
}

}  // namespace lockstep::bench
