#include "apps/lockstep-bench/merge_call.hpp"

#include <algorithm>
#include <cstdint>
#include <vector>

#include <fmt/format.h>

#include <lockstep/sync/strategy/strategy.hpp>

#include "apps/lockstep-bench/agreement_listener.hpp"
#include "apps/lockstep-bench/mpi_baseline.hpp"
#include "apps/lockstep-bench/timing.hpp"

namespace lockstep::bench {
namespace {

constexpr std::int64_t agreement_bytes = 16;

/// Agreements of this rank, on any communicator.
struct Agreements {
  std::int64_t count = 0;
  std::int64_t smallest_bytes = 0;  ///< of a round; both 0 before the first
  std::int64_t largest_bytes = 0;
};

/// Adds the agreements made during its lifetime to `made`.
class AgreementCounter final : public AgreementListener {
 public:
  explicit AgreementCounter(Agreements& made) : made_{made} {}

  void on_begin(std::int64_t bytes) override {
    made_.smallest_bytes = made_.count == 0 ? bytes : std::min(made_.smallest_bytes, bytes);
    made_.largest_bytes = std::max(made_.largest_bytes, bytes);
    ++made_.count;
  }

 private:
  Agreements& made_;
};

void run_merges(Strategy& strategy, std::int64_t merges) {
  strategy.run([&](ReplicaContext& context) {
    for (std::int64_t i = 0; i < merges; ++i) context.merge_call([](Strategy&) {});
  });
}

}  // namespace

std::string bench_merge_call(Runtime& runtime, const MergeCallOptions& options, const AddRow& add) {
  Strategy& strategy = runtime.strategy();
  MpiBaseline mpi;
  Agreements of_full_runs, of_empty_runs;
  const auto timed_run = [&](std::int64_t merges, Agreements& made) {
    mpi.barrier();
    const AgreementCounter counter{made};
    return microseconds([&] { run_merges(strategy, merges); });
  };

  std::vector<double> full, empty, bare, steps;
  for (std::int64_t i = -options.warm_up; i < options.iterations; ++i) {
    const double of_full = timed_run(options.merges, of_full_runs);
    const double of_empty = timed_run(0, of_empty_runs);
    mpi.barrier();
    const double of_bare = microseconds([&] {
      for (std::int64_t call = 0; call < options.merges; ++call) mpi.all_reduce_16_bytes();
    });
    mpi.barrier();
    const double of_steps = microseconds([&] {
      for (std::int64_t step = 0; step < options.steps; ++step) run_merges(strategy, 1);
    });
    if (i < 0) continue;
    full.push_back(of_full);
    steps.push_back(of_steps);
    empty.push_back(of_empty);
    bare.push_back(of_bare);
  }
  full = mpi.largest(std::move(full));
  empty = mpi.largest(std::move(empty));
  bare = mpi.largest(std::move(bare));
  steps = mpi.largest(std::move(steps));

  const auto merges = static_cast<double>(options.merges);
  // Computed for each iteration, so that drift over the iterations affects both terms alike.
  std::vector<double> prices, bare_prices, step_prices, ratios;
  for (std::size_t i = 0; i < full.size(); ++i) {
    prices.push_back((full[i] - empty[i]) / merges);
    bare_prices.push_back(bare[i] / merges);
    if (options.steps == 0) continue;
    step_prices.push_back(steps[i] / static_cast<double>(options.steps));
    ratios.push_back(step_prices.back() / (2 * bare_prices.back()));
  }
  const double time = median(prices), mpi_time = median(bare_prices);
  const auto runs = static_cast<double>(options.warm_up + options.iterations);
  const double agreements = static_cast<double>(of_full_runs.count - of_empty_runs.count) / (runs * merges);
  Row row{{"merges", "per run", options.merges},
          {"time", "us", time},
          {"mpi_time", "us", mpi_time},
          {"ratio", "time/mpi", time / mpi_time},
          {"agreements", "per merge", agreements},
          {"bytes", "B", of_full_runs.largest_bytes}};
  if (options.steps > 0) {
    row.insert(row.end(), {{"step", "us", median(step_prices)}, {"of_two", "step/2 mpi", median(ratios)}});
  } else {
    row.insert(row.end(), {{"run_time", "us", median(empty)},
                           {"run_agreements", "per run", static_cast<double>(of_empty_runs.count) / runs}});
  }
  add(row);

  const std::int64_t smallest = of_full_runs.smallest_bytes, largest = of_full_runs.largest_bytes;
  // A rank alone has nobody to agree with.
  if (strategy.num_replicas_in_sync() == 1 && largest == 0) return {};
  if (agreements == 1 && smallest == agreement_bytes && largest == agreement_bytes) return {};
  const std::string sizes =
      smallest == largest ? fmt::format("{}", largest) : fmt::format("{} to {}", smallest, largest);
  return fmt::format("merge-call: a merge_call made {} agreements, of {} bytes a round; expected 1 of {}", agreements,
                     sizes, agreement_bytes);
}

}  // namespace lockstep::bench
