// lockstep-train from its command line to its result, on simulated ranks in this process: for tests of what options
// mean, which need no process and no MPI.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

#include <lockstep/training.hpp>

#include "apps/lockstep-train/job.hpp"
#include "apps/lockstep-train/options/command_line.hpp"
#include "support/training_job.hpp"

namespace lockstep::test {

inline CommandLine parse(const Arguments& arguments) {
  std::vector<const char*> argv{"lockstep-train"};
  for (const std::string& argument : arguments) argv.push_back(argument.c_str());
  return parse_command_line(static_cast<int>(argv.size()), argv.data());
}

/// What `lockstep-train arguments…` leaves, on the ranks and nodes of `job`. Throws what ends such a job.
inline Trained train_simulated(sim::Options job, const Arguments& arguments) {
  CommandLine line = parse(arguments);
  const TemporaryDirectory folder;
  if (line.training.metrics.empty()) line.training.metrics = folder.path() / "metrics.jsonl";
  Trained trained;
  job.report = [](std::string_view) {};
  job.reductions = line.runtime.reductions;
  sim::run(std::move(job), [&](Strategy& strategy, int rank) {
    const std::string text = run_job(strategy, "cpu", line);
    if (rank != 0) return;
    const std::size_t last_line = text.rfind('\n', text.size() - 2) + 1;  // 0 where it is the only one
    trained.result = Json::parse(text.substr(last_line));
    trained.written = text.substr(0, last_line);
  });
  if (line.purpose != Purpose::training) return trained;
  trained.metrics = read_metrics(line.training.metrics);
  trained.parts = read_parts(line.training.metrics);
  return trained;
}

/// The same on so many ranks of one node.
inline Trained train_simulated(int ranks, const Arguments& arguments) {
  return train_simulated(sim::Options{.ranks = ranks}, arguments);
}

/// Runs until the last rank fails in a step, counted from 1.
inline void fail_in(std::int64_t step, int ranks, const Arguments& arguments) {
  ::setenv("LOCKSTEP_FAULT", ("throw:" + std::to_string(ranks - 1) + ":" + std::to_string(step - 1)).c_str(), 1);
  CHECK_THROWS_WITH(train_simulated(ranks, arguments), "LOCKSTEP_FAULT: thrown in step " + std::to_string(step));
  ::unsetenv("LOCKSTEP_FAULT");
}

}  // namespace lockstep::test
