// The trainer that goes on from its checkpoints, as include/README.md shows it.
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include <catch2/catch.hpp>
#include <unistd.h>

#include <lockstep/training.hpp>

using namespace lockstep;

TEST_CASE("a loop of steps goes on after its newest checkpoint") {
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("lockstep-checkpoints-" + std::to_string(::getpid()));
  std::vector<std::int64_t> trained;
  const auto run = [&](std::int64_t steps) {
    sim::run({.ranks = 2}, [&](Strategy& strategy, int rank) {
      const auto weight = strategy.create_variable({.name = "w"}, [] { return Tensor::scalar(0.0); });
      strategy.seal();
      const auto train = [&](std::int64_t step) {
        if (rank == 0) trained.push_back(step);
        weight.assign_add(Tensor::scalar(1.0));
      };

      CheckpointManager checkpoints{strategy, {.folder = folder, .every = 100, .training = {{"seed", "1"}}}};
      const auto resumed = checkpoints.resume_latest();  // after the variables are sealed
      for (std::int64_t step = resumed ? resumed->step : 0; step < steps; ++step) {
        strategy.set_step(step + 1);  // so that messages count as the program does, also after a resume
        train(step);
        checkpoints.after_step(step + 1);
      }
      CHECK(weight.local().item<double>() == static_cast<double>(steps));
    });
  };
  run(250);
  trained.clear();
  run(203);
  CHECK(trained == std::vector<std::int64_t>{200, 201, 202});
  std::filesystem::remove_all(folder);
}

TEST_CASE("a loop of steps that one rank is told to stop ends on all ranks after a checkpoint") {
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("lockstep-stopped-" + std::to_string(::getpid()));
  const auto run = [&](Strategy& strategy, int rank) {
    CheckpointManager checkpoints{strategy, {.folder = folder, .every = 100}};
    for (std::int64_t step = 0;; ++step) {
      strategy.run([&](ReplicaContext&) {
        if (rank == 1 && step == 4) strategy.request_stop();
      });
      if (strategy.stop_requested()) {
        checkpoints.save(step + 1);
        checkpoints.finish();
        throw StoppedError{"stopped after step " + std::to_string(step + 1) + "; the same command goes on from there"};
      }
    }
  };
  CHECK_THROWS_AS(sim::run({.ranks = 2, .report = [](std::string_view) {}}, run), StoppedError);
  CHECK(std::filesystem::exists(folder / "step-5"));
  std::filesystem::remove_all(folder);
}
