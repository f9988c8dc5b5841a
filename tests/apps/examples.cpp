// The programs in apps/examples, run as a reader would.
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "support/training_job.hpp"

using namespace lockstep::test;

namespace {

/// Runs the example whose path is in `variable`.
Outcome run_example(const char* variable, int ranks, const std::vector<std::string>& arguments) {
  const char* const program = std::getenv(variable);
  REQUIRE(program);
  std::vector<std::string> command{"mpirun", "-n", std::to_string(ranks), program};
  command.insert(command.end(), arguments.begin(), arguments.end());
  Outcome outcome = run_command(command, {.environment = mpi_environment()});
  INFO(outcome.err);
  REQUIRE(outcome.exit_code == 0);
  return outcome;
}

/// What the program says on its last line.
std::string train_on(int ranks, const std::filesystem::path& checkpoint) {
  const std::filesystem::path record = checkpoint.string() + "-record";
  const Outcome outcome = run_example("LOCKSTEP_EXAMPLE_SEQUENCES", ranks, {checkpoint.string(), record.string()});
  CHECK(lines_starting_with(read_file(record / "metrics.jsonl"), R"({"kind":"train")").size() == 320);
  CHECK(lines_starting_with(read_file(record / "timeline.jsonl"), R"({"kind":"end")").size() == 1);
  CHECK(lines_starting_with(outcome.out, "epoch 1: ").size() == 1);  // of the chief alone
  return last_line(outcome.out);
}

}  // namespace

TEST_CASE("the own model of the example learns its sequences, with the same weights on 1 and 2 ranks") {
  const TemporaryDirectory folder;
  const std::string on_one = train_on(1, folder.path() / "one"), on_two = train_on(2, folder.path() / "two");
  INFO(on_one);
  double before = 0, earlier = 0, constant = 0;
  REQUIRE(std::sscanf(on_one.c_str(), "x[t] = %lf x[t-1] %lf x[t-2] %lf", &before, &earlier, &constant) == 3);
  CHECK(before == Approx(1.6).margin(0.002));
  CHECK(earlier == Approx(-0.8).margin(0.002));
  CHECK(constant == Approx(0.1).margin(0.002));
  CHECK(on_two == on_one);
  CHECK(read_file(folder.path() / "two") == read_file(folder.path() / "one"));
}

TEST_CASE("the model function of the example classifies images, with a line of the chief on its placement", "[J-8]") {
  const char* const data = std::getenv("LOCKSTEP_SMALL_DATA");
  REQUIRE(data);
  for (const int ranks : {1, 2}) {
    const Outcome outcome = run_example("LOCKSTEP_EXAMPLE_ESTIMATOR", ranks, {data});
    double loss = 0, accuracy = 0;
    int predictions = 0;
    INFO(outcome.out);
    REQUIRE(std::sscanf(last_line(outcome.out).c_str(), "train loss %lf, test accuracy %lf, %d predictions", &loss,
                        &accuracy, &predictions) == 3);
    CHECK(loss < 1);
    CHECK(accuracy > 0.7);
    CHECK(predictions == 100);
    const std::string replicas = ranks == 1 ? "1 replica: " : "2 replicas: ";
    CHECK(lines_starting_with(outcome.err, "[rank 0] info: replicating the model_fn across " + replicas +
                                               "losses reduced as sum, variables mirrored")
              .size() == 1);
    CHECK(outcome.err.find("[rank 1] info: replicating") == std::string::npos);
  }
}

TEST_CASE("the solver and the trainer of the example go on where they were killed, with the same weights") {
  const TemporaryDirectory folder;
  const char* const program = std::getenv("LOCKSTEP_EXAMPLE_SOLVER");
  REQUIRE(program);
  const auto run = [&](int ranks, const std::string& name, const std::string& kill_in_step) {
    auto environment = mpi_environment();
    if (!kill_in_step.empty()) environment["KILL_IN_STEP"] = kill_in_step;
    return run_command({"mpirun", "-n", std::to_string(ranks), program, (folder.path() / name).string()},
                       {.environment = environment});
  };
  const Outcome whole = run(2, "whole", ""), killed = run(4, "killed", "230"), resumed = run(4, "killed", "");
  INFO(whole.err << killed.err << resumed.err);
  CHECK(killed.exit_code == 137);
  const auto lines = lines_starting_with(killed.err, "lockstep:");
  REQUIRE(lines.size() == 1);
  CHECK_THAT(lines.front(), Catch::StartsWith("lockstep: replica 0 (worker:0, world rank 2, host ") &&
                                Catch::Contains("is gone: its process ended; it was in step 230"));
  const std::string start = "from step 0: ";
  REQUIRE_THAT(last_line(whole.out),
               Catch::StartsWith(start + "u[i] becomes 0.200 u[i-1] +0.600 u[i] +0.200 u[i+1], weights "));
  // The checkpoint of step 200 may still have been on its way to the disk.
  CHECK_THAT(last_line(resumed.out), Catch::StartsWith("from step 200: ") || Catch::StartsWith("from step 150: "));
  CHECK_THAT(last_line(resumed.out), Catch::EndsWith(last_line(whole.out).substr(start.size())));
}

TEST_CASE("the residual network of LibTorch in the example learns", "[.torch]") {
  const Outcome outcome = run_example("LOCKSTEP_EXAMPLE_TORCH_CLASSIFIER", 2, {std::getenv("LOCKSTEP_SMALL_DATA")});
  double loss = 0, accuracy = 0;
  INFO(outcome.out);
  REQUIRE(std::sscanf(last_line(outcome.out).c_str(), "train loss %lf, test accuracy %lf", &loss, &accuracy) == 2);
  CHECK(loss < 1);
  CHECK(accuracy > 0.7);
}

TEST_CASE("the Transformer of LibTorch in the example learns a text", "[.torch][extended]") {
  const TemporaryDirectory folder;
  // Of few words, so that a short one is enough.
  const Outcome outcome =
      run_example("LOCKSTEP_EXAMPLE_TORCH_LANGUAGE_MODEL", 2, {folder.write("text", small_text(3000)).string()});
  INFO(outcome.out);
  std::vector<double> losses;
  for (const std::string& line : lines_starting_with(outcome.out, "epoch "))
    losses.push_back(std::stod(line.substr(line.rfind(' '))));
  REQUIRE(losses.size() == 6);
  CHECK(losses.front() > 2.5);
  CHECK(losses.back() < 1.6);
}
