// The records of runs, as include/README.md shows them.
#include <filesystem>
#include <fstream>
#include <string>

#include <catch2/catch.hpp>
#include <unistd.h>

#include <lockstep/models.hpp>

using namespace lockstep;

namespace {

std::filesystem::path new_folder(const char* name) {
  return std::filesystem::temp_directory_path() / (std::string{"lockstep-"} + name + std::to_string(::getpid()));
}

int lines_of(const std::filesystem::path& file, const std::string& kind) {
  std::ifstream in{file};
  int count = 0;
  for (std::string line; std::getline(in, line);) count += line.starts_with("{\"kind\":\"" + kind + "\"") ? 1 : 0;
  return count;
}

}  // namespace

TEST_CASE("a loop of steps goes on with its record after its newest checkpoint") {
  const std::filesystem::path folder = new_folder("record");
  const auto run = [&](std::int64_t steps) {
    sim::run({.ranks = 2}, [&](Strategy& strategy, int) {
      const auto weight = strategy.create_variable({.name = "w"}, [] { return Tensor::scalar(0.0); });
      strategy.seal();
      const auto train = [&](std::int64_t step) {
        weight.assign_add(Tensor::scalar(1.0));
        return 1 / static_cast<double>(step);
      };

      CheckpointManager checkpoints{strategy, {.folder = folder / "checkpoints", .every = 10}};
      const auto resumed = checkpoints.resume_latest();
      std::int64_t step = resumed ? resumed->step : 0;
      RunRecord record{strategy, {.folder = folder, .resume_after = step}};
      while (step < steps) {
        const double loss = train(++step);
        record.step(step, {.loss = loss, .samples = 256});
        checkpoints.after_step(step);
      }
      record.finish();
    });
  };
  run(25);  // and goes on after step 20
  run(30);
  CHECK(lines_of(folder / "metrics.jsonl", "train") == 30);
  CHECK(lines_of(folder / "timeline.jsonl", "start") == 2);
  CHECK(lines_of(folder / "timeline.jsonl", "end") == 2);
  std::filesystem::remove_all(folder);
}
