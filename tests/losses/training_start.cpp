// Writes what a run of lockstep-train begins with, for programs that train the same in another way: `training-start
// FOLDER STEPS OPTIONS…` takes the options of lockstep-train, and writes what only the library can know.
//   FOLDER/weights.safetensors  the model's variables before the first step
//   FOLDER/samples.json         for each of the first STEPS steps the samples of its batch, in order: [[5, 0, …], …]
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <lockstep/models.hpp>

#include "apps/lockstep-train/options/command_line.hpp"
#include "apps/lockstep-train/tasks/task.hpp"
#include "apps/options/option_values.hpp"
#include "core/base/exit_code.hpp"
#include "core/order/row_sequence.hpp"
#include "models/input/batch_schedule.hpp"

namespace {

using namespace lockstep;

std::vector<std::vector<std::int64_t>> samples_of_steps(const BatchSchedule& schedule, std::uint64_t seed,
                                                        std::int64_t steps) {
  RowSequence samples{schedule.samples(), std::nullopt, seed};
  std::vector<std::vector<std::int64_t>> all;
  for (std::int64_t step = 0; step < steps; ++step) {
    const auto [epoch, positions, ends_epoch] = schedule.batch(step);
    const std::int64_t begin = epoch * schedule.samples();
    all.push_back(samples.rows_at({begin + positions.first, begin + positions.last}));
  }
  return all;
}

void write_samples(const std::filesystem::path& path, const std::vector<std::vector<std::int64_t>>& of_steps) {
  std::ofstream file{path};
  file << nlohmann::json(of_steps) << '\n';
  if (!file.flush()) throw Error{fmt::format("{} cannot be written", path.string())};
}

void write_start(const std::filesystem::path& folder, std::int64_t steps, const TrainingOptions& given) {
  TrainingOptions options = with_defaults(given);
  const std::unique_ptr<TrainingTask> task = load_task(options);
  Strategy& strategy = Strategy::current();
  (void)task->make_model(strategy, ops::make_kernels(options.kernels, {1}));
  strategy.seal();
  save_checkpoint(strategy, folder / "weights.safetensors");
  const BatchSchedule schedule{task->samples().train.count(), *options.global_batch};
  write_samples(folder / "samples.json", samples_of_steps(schedule, options.seed, steps));
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc < 3) throw ConfigError{"expected training-start FOLDER STEPS, then the options of lockstep-train"};
    write_start(argv[1], parse_count("STEPS", argv[2]), parse_command_line(argc - 2, argv + 2).training);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "training-start: error: %s\n", error.what());
    return static_cast<int>(exit_code_of(error));
  }
}
