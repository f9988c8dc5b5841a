// Checkpoints between jobs: saved by some ranks, restored by others, read by a program that knows nothing of lockstep.
#include <cstdlib>

#include <catch2/catch.hpp>

#include "support/job.hpp"

using namespace lockstep::test;

namespace {

constexpr int no_ranks = 0;  ///< a program that is not distributed

Outcome job(int ranks, const std::string& act, const std::filesystem::path& path) {
  std::vector<std::string> command;
  if (ranks != no_ranks) command = {"mpirun", "-n", std::to_string(ranks)};
  command.insert(command.end(), {std::getenv("LOCKSTEP_CHECKPOINT_PROGRAM"), act, path.string()});
  if (ranks == no_ranks) command.push_back("alone");
  const Outcome outcome = run_command(command, {.environment = mpi_environment()});
  INFO(outcome.err);
  CHECK_FALSE(outcome.timed_out);
  CHECK(processes_left(outcome.marker).empty());
  return outcome;
}

/// Ends well, and returns what it printed.
std::string done(int ranks, const std::string& act, const std::filesystem::path& path) {
  const Outcome outcome = job(ranks, act, path);
  INFO(outcome.err);
  CAPTURE(ranks, act);
  REQUIRE(outcome.exit_code == 0);
  return outcome.out;
}

}  // namespace

TEST_CASE("what some ranks saved, others restore, more or fewer of them or none at all", "[C-47]") {
  const TemporaryDirectory folder;
  const auto saved = folder.path() / "by-4";
  done(4, "save", saved);
  for (const int ranks : {no_ranks, 1, 2}) {
    CAPTURE(ranks);
    const auto other = folder.path() / "by-others";
    done(ranks, "save", other);
    CHECK(read_file(other) == read_file(saved));
  }
  const std::string restored = done(4, "restore", saved);
  CHECK(lines_starting_with(restored, "steps 0010a5d4e8000000").size() == 1);
  CHECK(lines_starting_with(restored, "samples 0b00000000000000").size() == 1);
  CHECK(lines_starting_with(restored, "loss 0000000000004640").size() == 1);
  CHECK(lines_starting_with(restored, "average 0000003f00000041").size() == 1);
  for (const int ranks : {no_ranks, 1, 2, 3}) {
    CAPTURE(ranks);
    CHECK(done(ranks, "restore", saved) == restored);
  }
}

TEST_CASE("a checkpoint is read by a program that knows its format, and nothing of lockstep") {
  const TemporaryDirectory folder;
  done(2, "save", folder.path() / "c");
  done(3, "save-step", folder.path());
  for (const char* name : {"c", "step-1"}) {
    const Outcome outcome =
        run_command({"python3", std::getenv("LOCKSTEP_READ_SAFETENSORS"), (folder.path() / name).string()});
    INFO(name << ": " << outcome.err);
    REQUIRE(outcome.exit_code == 0);
    CHECK(outcome.out == done(1, "restore", folder.path() / "c"));
  }
}

TEST_CASE("a checkpoint that cannot be restored ends the job with one line, and a code of its own") {
  const TemporaryDirectory folder;
  const auto path = folder.write("c", "not a checkpoint");
  for (const int ranks : {1, 3}) {
    const Outcome outcome = job(ranks, "restore", path);
    CHECK(outcome.exit_code == 7);
    const auto lines = lines_starting_with(outcome.err, "lockstep: ");
    REQUIRE(lines.size() == 1);
    CHECK_THAT(lines.front(), Catch::StartsWith("lockstep: error: checkpoint ") &&
                                  Catch::Contains(path.string() + ": is no file in the safetensors format"));
  }
}
