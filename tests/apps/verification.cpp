// lockstep-verify and lockstep-bisect as programs: what they print, and their exit codes. What they find is tested on
// simulated ranks, in verified_runs.cpp.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include <catch2/catch.hpp>

#include "apps/forged_ledger.hpp"
#include "support/training_job.hpp"

using namespace lockstep::test;

namespace {

Outcome check_run(int ranks, const char* program, const Arguments& arguments) {
  return run_command(Arguments{"mpirun", "-q", "-n", std::to_string(ranks), std::getenv(program)} + arguments);
}

void check_ends(const Outcome& outcome, int exit_code, const std::string& told) {
  INFO("stdout: " << outcome.out << "\nstderr: " << outcome.err);
  CHECK(outcome.exit_code == exit_code);
  const auto lines = lines_starting_with(outcome.err, "lockstep: error: ");
  REQUIRE(lines.size() == 1);
  CHECK_THAT(lines.front(), Catch::Contains(told));
}

Outcome verify(int ranks, const std::filesystem::path& run) {
  return check_run(ranks, "LOCKSTEP_VERIFY", {run.string()});
}

}  // namespace

TEST_CASE("lockstep-verify confirms a run, or says what its ledger lacks") {
  const TemporaryDirectory folder;
  const std::filesystem::path run = folder.path() / "run";
  (void)train(2, recorded(run));
  const Outcome whole = verify(1, run);
  CHECK(whole.out ==
        "confirmed: 6 entries of the ledger, 3 checkpoints, the exported weights, steps 1 to 9, on 1 rank\n");
  CHECK(whole.exit_code == 0);

  std::string text = read_file(run / "ledger.jsonl");
  text.resize(text.rfind("{\"step\""));
  std::ofstream{run / "ledger.jsonl"} << text;
  check_ends(verify(1, run), 7, "has no end, although the run has ended");
  std::filesystem::remove(run / "ledger.jsonl");
  check_ends(verify(1, run), 2, "holds no ledger; expected a run without --ledger off");
}

TEST_CASE("lockstep-verify says what a run did not compute, and lockstep-bisect finds it") {
  const TemporaryDirectory folder;
  const std::filesystem::path run = folder.path() / "run", forged = folder.path() / "forged";
  (void)train(2, recorded(run));
  std::filesystem::copy(run, forged, std::filesystem::copy_options::recursive);
  forge_shard(forged);
  check_ends(verify(2, forged), 9, "step 6 is not as the ledger has it: gradient of 'dense_1/bias' of shard 5");
  const auto copy_of_rank = [&](const char* name) {
    std::filesystem::create_directory(folder.path() / name);
    std::filesystem::copy(folder.path() / (name == std::string{"0"} ? "run" : "forged"), folder.path() / name / "run",
                          std::filesystem::copy_options::recursive);
    return Arguments{"-n", "1", "--wdir", (folder.path() / name).string(), std::getenv("LOCKSTEP_VERIFY"), "run"};
  };
  const Outcome copies =
      run_command(Arguments{"mpirun", "-q"} + copy_of_rank("0") + Arguments{":"} + copy_of_rank("1"));
  CHECK(copies.exit_code == 3);
  CHECK_THAT(copies.err, Catch::StartsWith("lockstep: replica 1 ") && Catch::Contains("a ledger with the last chain"));
  const Outcome differ = check_run(2, "LOCKSTEP_BISECT", {"--run-dir", run.string(), "--run-dir", forged.string()});
  INFO(differ.out << differ.err);
  CHECK(differ.exit_code == 9);
  CHECK_THAT(differ.out, Catch::StartsWith("the ledgers agree up to step 4, and not in step 6\n") &&
                             Catch::Contains("/run: computed again here, it gives what its ledger has\n") &&
                             Catch::Contains("/forged: computed again here, it gives something else than its ledger "
                                             "has\n") &&
                             Catch::Contains("both give the same here, up to step 6\n"));
}
