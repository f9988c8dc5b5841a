// Command lines that are wrong, as a job sees them: one line that names the option and what was expected. What is wrong
// with each option is in refused_options.cpp.
#include <catch2/catch.hpp>

#include "support/training_job.hpp"

using namespace lockstep::test;

TEST_CASE("an option that is wrong is refused in one line, whatever its value holds, wherever it is found out") {
  check_refused(run_refused(2, short_run() + Arguments{"--learning-rate", "0.1\n0.2"}),
                {"--learning-rate", "expected a positive number"});
  check_refused(run_refused(1, short_run() + Arguments{"--seed", "\xff\xfe"}), {"--seed", "expected a whole number"});
  check_refused(run_refused(2, {}), {"--data is missing", "lockstep-train --help lists the options"});
  // By the run, which knows the data and the ranks.
  check_refused(run_refused(2, short_run() + Arguments{"--warmup-steps", "3"}),
                {"--warmup-steps 3: the run has 3 steps; expected fewer to warm up in"});
  check_refused(run_refused(3, short_run() + Arguments{"--shards", "2"}),
                {"--shards is 2, and the job has 3 ranks", "expected 3 or more, or 'ranks'"});
}

TEST_CASE("a metrics file that cannot be written is refused before anything is trained") {
  const TemporaryDirectory folder;
  const std::string missing = folder.path() / "missing" / "metrics.jsonl";
  check_refused(run_refused(2, short_run() + Arguments{"--metrics", missing}),
                {"--metrics " + missing + ": No such file or directory", "expected a file that can be written"});
  check_refused(run_refused(1, short_run() + Arguments{"--metrics", folder.path()}),
                {"--metrics " + folder.path().string() + ": Is a directory"});
}

TEST_CASE("--device cuda without a GPU is refused", "[D-33]") {
  // Whatever this machine has, no GPU can be seen.
  check_refused(
      run_refused(2, short_run() + Arguments{"--device", "cuda"}, {.environment = {{"CUDA_VISIBLE_DEVICES", ""}}}),
      {"--device cuda: this node has no GPU that can be used", "or --device cpu"});
}

TEST_CASE("a malformed LOCKSTEP_FAULT is refused with its form") {
  for (const char* fault : {"", "kill:2:1"}) {
    INFO("LOCKSTEP_FAULT='" << fault << "'");
    check_refused(run_refused(2, short_run(), {.environment = {{"LOCKSTEP_FAULT", fault}}}),
                  {std::string{"LOCKSTEP_FAULT '"} + fault + "'",
                   "expected KIND:RANK:STEP with KIND one of throw, exit, kill, stop, hang, skip-merge, flip, usr1, "
                   "miscompute, misread, RANK below 2"});
  }
}

TEST_CASE("ranks that were started with different options are refused", "[B-6][E-12]") {
  const char* const program = std::getenv("LOCKSTEP_TRAIN");
  REQUIRE(program);
  const auto start = [&](const Arguments& first, const Arguments& second) {
    return run_refused_command(Arguments{"mpirun", "-n", "2", program} + short_run() + first +
                               Arguments{":", "-n", "1", program} + short_run() + second);
  };
  check_refused(start({"--seed", "1"}, {"--seed", "2"}),
                {"replica 2 was started with other options than replica 0", "--seed 1", "--seed 2"});
  check_refused(start({}, {"--seed", "x"}), {"--seed x: expected a whole number"});
  check_refused(start({}, {"--stall-timeout", "7"}),
                {"replica 2 was started with other options than replica 0", "--stall-timeout"});
  check_refused(start({}, {"--on-stall", "observe"}), {"replica 2 was started with other options", "(observed)"});
  check_refused(start({"--network", "203.0.113.0/24"}, {"--network", "203.0.113.0/24"}),
                {"--network 203.0.113.0/24: host ", " has no address there; it has "});
  // Devices decide which reductions are used.
  check_refused(start({"--device", "auto"}, {"--device", "cpu"}),
                {"replica 2 was started with other options than replica 0", "device auto, automatic reductions",
                 "device cpu, automatic reductions"});
}
