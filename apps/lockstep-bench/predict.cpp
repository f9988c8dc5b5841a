#include "apps/lockstep-bench/predict.hpp"

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <lockstep/core/base/error.hpp>

#include "apps/lockstep-bench/mpi_baseline.hpp"
#include "apps/lockstep-bench/network.hpp"
#include "apps/lockstep-bench/step_run.hpp"
#include "apps/lockstep-bench/step_statistics.hpp"
#include "sync/group/local_group.hpp"
#include "sync/strategy/inside.hpp"

namespace lockstep::bench {
namespace {

constexpr std::int64_t steps = 3;  // in a block

// Bytes of a sum between nodes. A smaller one tells more of how TCP begins than of the wire.
constexpr std::int64_t smallest_measured = 4 << 20, largest_measured = 16 << 20;

/// COLL. Between the ranks, by sums of about as many bytes as there are of gradients, or more if those tell no rate.
Links measure(Runtime& runtime, MpiBaseline& mpi, const PredictOptions& options, std::int64_t bytes) {
  runtime.strategy().run([&](ReplicaContext&) {
    if (mpi.ranks() == 1)
      throw ConfigError{
          "predict: there is no rate: expected --rate, such as --rate 100mbit, or a job of several nodes"};
  });
  const bool share_nodes = mpi.largest({static_cast<double>(mpi.ranks_on_node())}).front() > 1;
  runtime.strategy().run([&](ReplicaContext&) {
    if (share_nodes)
      throw ConfigError{
          "predict: ranks share a node, so their links are no network; expected one rank on each node, or "
          "--rate, such as --rate 100mbit"};
  });
  std::int64_t measured = std::clamp(bytes, smallest_measured, largest_measured);
  for (;; measured = std::min(4 * measured, largest_measured)) {
    // The first two sums find out how much TCP may have under way.
    const SumTimes times = measure_sums(runtime, measured, options.warm_up + 1, options.iterations);
    const double sum = times.sum / 1e3, delay = times.latency / 1e3;
    if (tells_rate(sum, delay) || measured == largest_measured) return links_of_sum(mpi.ranks(), measured, sum, delay);
  }
}

/// The largest number of samples that one of the nodes has.
std::int64_t batch_of(int nodes, std::int64_t global_batch) {
  return (global_batch + nodes - 1) / nodes;
}

/// Trains alone on each rank, with one shard.
class LoneSteps {
 public:
  LoneSteps(const StepOptions& options, std::int64_t batch)
      : samples_{options.model, step_batches * batch},
        run_{strategy_on(*group_, timed_reductions(clock_, [] {})),
             clock_,
             samples_,
             {.model = options.model,
              .global_batch = batch,
              .shards = 1,
              .threads = options.threads,
              .hidden = options.hidden}} {}

  void measure(bool counts) {
    Block block = run_.block(steps);
    if (counts) blocks_.push_back(std::move(block));
  }

  PartTimes typical() const { return typical_step(blocks_); }
  StepRun& run() { return run_; }

 private:
  std::unique_ptr<ReplicaGroup> group_ = make_local_group();
  StepClock clock_;
  RandomSamples samples_;
  StepRun run_;
  std::vector<Block> blocks_;
};

/// Of a rank alone, which sends nothing.
double computation_in(const PartTimes& step) {
  return step.whole() - step.of(Part::waiting) - step.of(Part::communication) - step.of(Part::agreement);
}

/// COLL. Of the slowest rank, if its `slowdown` is what it is because all ranks have measured at the same time.
StepWork work_of(LoneSteps& lone, double slowdown, MpiBaseline& mpi) {
  const PartTimes step = lone.typical();
  const std::vector<double> slowest = mpi.largest({computation_in(step), step.of(Part::backward)});
  return {.computation = slowest[0] / slowdown,
          .backward = slowest[1] / slowdown,
          .looks = looks_of(mpi.mean(lone.run().ready_moments()), lone.run().messages())};
}

Row row_of(int nodes, std::int64_t batch, StepRun& run, const StepWork& work, const Links& links,
           const Prediction& step, double alone) {
  constexpr std::size_t digits = 7;
  const auto time = [](const char* name, double value) { return Cell{name, "ms", value, Place::column, digits}; };
  return {{"model", "", std::string{run.model()}, Place::title},
          {"parameters", "", run.parameters(), Place::title},
          {"gradients", "B", work.bytes(), Place::title},
          {"messages", "", std::ssize(run.messages()), Place::title},
          {"delay", "ms", links.delay, Place::title},
          {"nodes", "", std::int64_t{nodes}, Place::column, digits - 3},
          {"batch", "", batch, Place::column, digits - 2},
          {"rate", "MB/s", nodes == 1 ? 0 : slowest_rate(nodes, links), Place::column, digits - 1},
          time("step", step.step()),
          time("computation", step.computation),
          time("exposed", step.exposed),
          time("latency", step.latency),
          time("wire", step.wire),
          {"efficiency", "", alone / (nodes * step.step()), Place::column, digits},
          {"limit", "", std::string{step.limit()}, Place::column, digits},
          {"note", "", std::string{nodes > most_verified_nodes ? "not verified" : "-"}, Place::column, digits}};
}

}  // namespace

void predict(Runtime& runtime, const PredictOptions& options, const AddRow& add) {
  MpiBaseline mpi;
  const std::int64_t global_batch = global_batch_of(options.step);
  // One node is what others are compared with.
  std::map<std::int64_t, std::unique_ptr<LoneSteps>> by_batch;
  const auto steps_of = [&](int nodes) -> std::unique_ptr<LoneSteps>& {
    return by_batch[batch_of(nodes, global_batch)];
  };
  for (const int nodes : options.nodes) steps_of(nodes);
  steps_of(1);
  for (auto& [batch, lone] : by_batch) lone = std::make_unique<LoneSteps>(options.step, batch);
  StepRun& any = by_batch.begin()->second->run();
  const std::int64_t bytes = any.parameters() * static_cast<std::int64_t>(sizeof(float));
  const Links links = options.links ? *options.links : measure(runtime, mpi, options, bytes);

  for (std::int64_t i = -options.warm_up; i < options.iterations; ++i)
    for (auto& [batch, lone] : by_batch) {
      mpi.barrier();
      lone->measure(i >= 0);
    }
  const Cores cores{options.step.threads, options.shared_cores};
  const auto predicted = [&](int nodes) {
    const StepWork work = work_of(*steps_of(nodes), slowdown_of(mpi.ranks(), cores), mpi);
    return std::pair{work, predict_step(nodes, work, links, cores)};
  };
  const double alone = predicted(1).second.step();
  for (const int nodes : options.nodes) {
    const auto [work, step] = predicted(nodes);
    add(row_of(nodes, batch_of(nodes, global_batch), any, work, links, step, alone));
  }
}

}  // namespace lockstep::bench
