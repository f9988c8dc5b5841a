// Reads the command line and runs the benchmark that it names.
#include <optional>

#include <lockstep/core/base/error.hpp>
#include <lockstep/job/runtime/runtime.hpp>

#include "apps/lockstep-bench/command_line.hpp"
#include "apps/lockstep-bench/step_cost.hpp"
#include "apps/options/run_command_line.hpp"

namespace {

using namespace lockstep;
using namespace lockstep::bench;

std::string measure(Runtime& runtime, const AllReduceOptions& options, const AddRow& add) {
  return bench_all_reduce(runtime, options, add);
}
std::string measure(Runtime& runtime, const MergeCallOptions& options, const AddRow& add) {
  return bench_merge_call(runtime, options, add);
}
std::string measure(Runtime& runtime, const RequestOptions& options, const AddRow& add) {
  return bench_requests(runtime, options, add);
}
std::string measure(Runtime& runtime, const ExactSumOptions& options, const AddRow& add) {
  return bench_exact_sum(runtime, options, add);
}
std::string measure(Runtime& runtime, const NetworkOptions& options, const AddRow& add) {
  return bench_network(runtime, options, add);
}
std::string measure(Runtime& runtime, const InputOptions& options, const AddRow& add) {
  return bench_input(runtime, options, add);
}
std::string measure(Runtime& runtime, const bench::WatchdogOptions& options, const AddRow& add) {
  return bench_watchdog(runtime, options, add);
}
std::string measure(Runtime& runtime, const ScaleOptions& options, const AddRow& add) {
  return bench_scale(runtime, options, add);
}

std::string measure(Runtime& runtime, const StepOptions& options, const AddRow& add) {
  const bool has_two_models =
      options.compare == StepOptions::Compare::shards || options.compare == StepOptions::Compare::kernels;
  has_two_models ? bench_step(runtime, options, add) : bench_step_cost(runtime, options, add);
  return {};
}

std::string measure(Runtime& runtime, const ArithmeticOptions& options, const AddRow& add) {
  return bench_arithmetic(runtime, options, add);
}

std::string measure(Runtime& runtime, const PredictOptions& options, const AddRow& add) {
  predict(runtime, options, add);
  return {};
}

template <class Options>
void run(Runtime& runtime, const Options& options, const std::filesystem::path& json) {
  Strategy& strategy = runtime.strategy();
  std::optional<Report> report;  // on the chief only
  // Inside a run, so that a failure of the chief fails on all ranks, and before anything is measured.
  strategy.run([&](ReplicaContext&) {
    if (runtime.is_chief()) report.emplace(Subject{Options::name, runtime.size(), runtime.device_name()}, json);
  });
  const std::string wrong = measure(runtime, options, [&](const Row& row) {
    if (report) report->add(row);
  });
  strategy.run([&](ReplicaContext&) {
    if (report) report->finish();
  });
  // On every rank, because the failure is the job's.
  strategy.run([&](ReplicaContext&) {
    if (!wrong.empty()) throw Error{wrong};
  });
}

}  // namespace

int main(int argc, char** argv) {
  CommandLine line;
  return run_command_line(
      argc, argv,
      [&] {
        line = parse_command_line(argc, argv);
        return line.answer;
      },
      [&] { return line.runtime; },
      [&](Runtime& runtime) {
        std::visit([&](const auto& options) { run(runtime, options, line.json); }, line.benchmark);
      });
}
