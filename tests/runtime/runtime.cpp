// Every way out of a program that uses the library: one line, one exit code, nobody left.
#include <csignal>
#include <cstdlib>
#include <filesystem>

#include <catch2/catch.hpp>

#include "support/job.hpp"
#include "support/this_mpi.hpp"

using namespace lockstep::test;

namespace {

Outcome exits(int ranks, const std::string& mode, int culprit, const std::vector<std::string>& mpirun_options = {},
              const Environment& more = {}) {
  std::vector<std::string> command{"mpirun", "-n", std::to_string(ranks)};
  command.insert(command.end(), mpirun_options.begin(), mpirun_options.end());
  command.insert(command.end(), {std::getenv("LOCKSTEP_EXITS"), mode, std::to_string(culprit)});
  Environment environment = more;
  environment.insert(mpi_environment().begin(), mpi_environment().end());
  const Outcome outcome = run_command(command, {.environment = environment, .timeout = std::chrono::seconds{60}});
  INFO(outcome.err);
  CHECK_FALSE(outcome.timed_out);
  CHECK(processes_left(outcome.marker).empty());
  return outcome;
}

/// The same without the second that mpirun gives the others, where a rank speaks before it ends the job.
Outcome exits_at_once(int ranks, const std::string& mode, int culprit) {
  return exits(ranks, mode, culprit, {}, {kills_at_once});
}

/// The one line that says why.
std::string reason(const Outcome& outcome) {
  const auto lines = lines_starting_with(outcome.err, "lockstep: ");
  INFO(outcome.err);
  REQUIRE(lines.size() == 1);
  return lines.front();
}

}  // namespace

TEST_CASE("a program that works ends with 0 and says nothing") {
  const Outcome outcome = exits(3, "fine", 0);
  CHECK(outcome.exit_code == 0);
  CHECK(lines_starting_with(outcome.err, "lockstep: ").empty());
}

TEST_CASE("SIGUSR2 ends no process that has or had a runtime, and a program that handles it keeps it") {
  for (const char* mode : {"asked", "asked-handled"}) {
    CAPTURE(mode);
    const Outcome outcome = exits(2, mode, 0, {}, {{"LOCKSTEP_FAULT", "kill:1:0"}});
    CHECK(outcome.exit_code == 0);
    CHECK(lines_starting_with(outcome.err, "lockstep: ").empty());
    // These programs inject no faults.
    CHECK(
        lines_starting_with(outcome.err, "[rank 0] warning: LOCKSTEP_FAULT is 'kill:1:0', but nothing failed").size() ==
        1);
  }
}

TEST_CASE("an exception that nothing catches ends the job with its rank's name, wherever it was thrown", "[long]") {
  for (const int culprit : {0, 2}) {
    const std::string start = "lockstep: replica " + std::to_string(culprit) + " (worker:" + std::to_string(culprit);
    for (const auto& [mode, text] : {std::pair{"uncaught-in-step", "failed: uncaught in a step"},
                                     std::pair{"uncaught-alone", "failed: uncaught outside of any step"},
                                     std::pair{"program-alone", "failed: body failed on its own"}}) {
      CAPTURE(mode, culprit);
      const Outcome outcome = exits_at_once(3, mode, culprit);
      CHECK(outcome.exit_code == 4);
      CHECK_THAT(reason(outcome), Catch::StartsWith(start) && Catch::Contains(text + std::string{"; it was "}));
      // Where in the program: a step, or the one before.
      CHECK_THAT(reason(outcome), Catch::Contains(" step ") && Catch::Contains(", computing (exits.cpp:"));
    }
  }
}

TEST_CASE("a failure that is reported, and that nothing catches, ends the job as any other") {
  const Outcome outcome = exits(2, "reported-uncaught", 1);
  CHECK(outcome.exit_code == 4);
  CHECK_THAT(reason(outcome), Catch::Contains("failed: uncaught in a step"));
}

TEST_CASE("a rank that fails does not wait for others that work") {
  const Outcome outcome = exits(2, "uncaught-while-others-work", 1);
  CHECK(outcome.exit_code == 4);
  CHECK_THAT(reason(outcome), Catch::StartsWith("lockstep: replica 1 (worker:1") &&
                                  Catch::Contains("failed: uncaught while others work"));
}

TEST_CASE("with mpirun -q the sentence is the last line") {
  if (!can_be_quiet) return;
  const Outcome outcome = exits(2, "uncaught-in-step", 1, {"-q"});
  CHECK(outcome.err.ends_with(reason(outcome) + "\n"));
}

TEST_CASE("an exception that main catches outside of the runtime still names its rank") {
  const Outcome outcome = exits(2, "caught-outside", 1);
  CHECK(outcome.exit_code == 4);
  CHECK_THAT(reason(outcome), Catch::StartsWith("lockstep: replica 1 (worker:1"));
}

TEST_CASE("what all ranks throw alike is said once") {
  const Outcome outcome = exits(3, "uncaught-everywhere", 0);
  CHECK(outcome.exit_code == 2);
  CHECK(reason(outcome) == "lockstep: error: the same wrong file on all ranks");
}

TEST_CASE("a rank that returns from main, or from run_program's body, while the others go on is named",
          "[long][B-11]") {
  for (const std::string mode : {"early-return", "program-early-return"}) {
    for (const int culprit : {0, 1}) {
      CAPTURE(mode, culprit);
      const Outcome outcome = exits_at_once(3, mode, culprit);
      CHECK(outcome.exit_code == 3);
      CHECK_THAT(reason(outcome), Catch::StartsWith("lockstep: replica " + std::to_string(culprit) + " (") &&
                                      Catch::Contains("has finished the job"));
    }
  }
}

TEST_CASE("a rank that leaves with a verdict which the others made light of does not leave them waiting") {
  for (const std::string mode : {"leaves-with-verdict", "program-leaves-with-verdict"}) {
    for (const int leaving : {0, 1}) {
      CAPTURE(mode, leaving);
      const Outcome outcome = exits(3, mode, leaving);
      CHECK(outcome.exit_code == 3);
      // Replica 0 speaks: of the verdict it left with, or of the one it got afterwards.
      CHECK_THAT(reason(outcome), Catch::Contains(leaving == 0 ? "is at same_on_all" : "replica 1 (") &&
                                      Catch::Contains(leaving == 0 ? "replica 2 (" : "has finished the job"));
    }
  }
}

TEST_CASE("a verdict that one rank made light of is said all the same, where the others leave with it") {
  for (const std::string mode : {"swallows-verdict", "program-swallows-verdict"}) {
    for (const int swallowing : {0, 1}) {
      CAPTURE(mode, swallowing);
      const Outcome outcome = exits_at_once(3, mode, swallowing);
      CHECK(outcome.exit_code == 3);
      CHECK_THAT(reason(outcome), Catch::Contains("is at same_on_all") && Catch::Contains("with 0"));
    }
  }
}

TEST_CASE("a rank that calls exit in the middle of the job is told as that, with its code and place") {
  for (const int culprit : {0, 1}) {
    CAPTURE(culprit);
    const std::string start = "lockstep: replica " + std::to_string(culprit) + " (";
    const Outcome three = exits_at_once(2, "program-exit", culprit);
    CHECK(three.exit_code == 3);
    CHECK_THAT(reason(three), Catch::StartsWith(start) &&
                                  Catch::Contains(") called exit(3) before the end of the job; it was in step 2, "
                                                  "computing (exits.cpp:"));
    // Success is not what the job ends with.
    const Outcome zero = exits_at_once(2, "early-exit", culprit);
    CHECK(zero.exit_code == 4);
    CHECK_THAT(reason(zero), Catch::StartsWith(start) && Catch::Contains(") called exit(0) before the end of the job"));
  }
}

TEST_CASE("a complete run ends with main's code, and in order, if nobody destroys its runtime before") {
  for (const auto& [mode, code] : {std::pair{"ends-static", 0}, std::pair{"ends-global", 3},
                                   std::pair{"ends-leaked", 0}, std::pair{"ends-by-exit", 0}}) {
    CAPTURE(mode, code);
    const Outcome outcome = exits(2, mode, code);
    CHECK(outcome.exit_code == code);
    CHECK(outcome.out == "done");
    CHECK(lines_starting_with(outcome.err, "lockstep: ").empty());
  }
}

TEST_CASE("a rank that ends by itself when another one is lost may have a static runtime") {
  const Outcome outcome = exits(2, "told", 1);
  CHECK(outcome.exit_code == 7);
  CHECK_THAT(outcome.out, Catch::StartsWith("told: replica 1 (worker:1, host ") && Catch::Contains(" has stopped: "));
  // The rank that stopped may be told of the end of the other one, afterwards.
  CHECK_THAT(reason(outcome), Catch::EndsWith(outcome.out.substr(6, outcome.out.find('\n') - 6)));
}

TEST_CASE("ranks that use two groups in different orders end with one line that has both places") {
  const Outcome outcome = exits_at_once(3, "groups-crossed", 0);
  CHECK(outcome.exit_code == 5);
  CHECK_THAT(
      reason(outcome),
      Catch::StartsWith("lockstep: replica 0 (worker:0, host ") &&
          Catch::Contains(") and replica 1 have waited for each other for 1 s: replica 0 (") &&
          Catch::Contains("waiting at reduction #1 (exits.cpp:172); replica 1 (worker:1, host ") &&
          Catch::Contains("waiting at reduction #1 (exits.cpp:173); expected every rank to block in its groups in "));
}

TEST_CASE("a rank that does not come to make a group is named") {
  const Outcome outcome = exits_at_once(2, "groups-not-made", 1);
  CHECK(outcome.exit_code == 5);
  CHECK_THAT(reason(outcome), Catch::StartsWith("lockstep: replica 1 (worker:1, host ") &&
                                  Catch::Contains(" is late: the making of a group (exits.cpp:"));
}

TEST_CASE("a failure in a group of some of the ranks ends the job with its line, whatever the others do") {
  const Outcome outcome = exits_at_once(3, "groups-fail", 1);
  CHECK(outcome.exit_code == 4);
  CHECK_THAT(reason(outcome), Catch::StartsWith("lockstep: replica 1 (worker:1, host ") &&
                                  Catch::EndsWith(") failed: failed in a group; it was in step 1, computing "
                                                  "(exits.cpp:169)"));
}

TEST_CASE("a pause of the whole job is nobody's lateness") {
  const Outcome outcome = exits(2, "paused", 0);
  CHECK(outcome.exit_code == 0);
  CHECK(lines_starting_with(outcome.err, "lockstep: ").empty());
}

namespace {

/// A job in which rank 1 is another program, and never joins.
void check_never_joins(const std::vector<std::string>& other, const std::string& program, const std::string& why,
                       int exit_code = code_of_stopped_without_mpi) {
  std::vector<std::string> command{"mpirun", "-n", "1", std::getenv("LOCKSTEP_EXITS"), "impatient", "0",
                                   ":",      "-n", "1"};
  command.insert(command.end(), other.begin(), other.end());
  const Outcome outcome = run_command(command, {.environment = mpi_environment(), .timeout = std::chrono::seconds{60}});
  CHECK((outcome.exit_code == exit_code || is_killed_with_stopped(outcome.exit_code)));
  CHECK_THAT(reason(outcome), Catch::StartsWith("lockstep: world rank 1 (host ") && Catch::Contains(program) &&
                                  Catch::Contains(") has not joined the job: " + why + "; it was waited for ") &&
                                  Catch::EndsWith(" s while the job was starting"));
  CHECK(processes_left(outcome.marker).empty());
}

}  // namespace

TEST_CASE("a member of the job that has ended before it joins is named, with its host") {
  check_never_joins({"true"}, "", "its process has ended", 5);
}
TEST_CASE("a member of the job that runs and does not start MPI is named, with its host", "[extended]") {
  check_never_joins({"sleep", "600"}, ", program sleep", "it has not started MPI");
}
TEST_CASE("a member of the job that starts MPI and makes no runtime is named, with its host", "[extended]") {
  check_never_joins({std::getenv("LOCKSTEP_EXITS"), "only-mpi", "0"}, ", program exits",
                    "it has started MPI, but makes no Runtime");
}

namespace {

/// Rank 0 of two, or a rank alone, and the last rank under the library that plays a machine which lacks that.
Outcome lacks(int ranks, const std::string& mode, const std::string& what) {
  std::vector<std::string> command;
  if (ranks == 2) command = {"mpirun", "-n", "1", std::getenv("LOCKSTEP_EXITS"), mode, "1", ":", "-n", "1"};
  for (const std::string& word :
       {std::string{"env"}, "LD_PRELOAD=" + std::string{std::getenv("LOCKSTEP_LACKING")}, "LOCKSTEP_TEST_LACKS=" + what,
        std::string{std::getenv("LOCKSTEP_EXITS")}, mode, std::to_string(ranks - 1)})
    command.push_back(word);
  const Outcome outcome = run_command(command, {.environment = mpi_environment(), .timeout = std::chrono::seconds{60}});
  CHECK_FALSE(outcome.timed_out);
  CHECK(processes_left(outcome.marker).empty());
  return outcome;
}

bool has_lacked(const Outcome& outcome) {
  return !lines_starting_with(outcome.err, "lacks").empty();
}

}  // namespace

namespace {

void check_refused_threads(int ranks) {
  if (!std::getenv("LOCKSTEP_LACKING")) return;
  int refused = 1;
  for (;; ++refused) {
    CAPTURE(ranks, refused);
    const Outcome outcome = lacks(ranks, "program-fine", "threads:" + std::to_string(refused));
    INFO(outcome.err);
    if (!has_lacked(outcome)) {
      CHECK(outcome.exit_code == 0);
      break;
    }
    CHECK(ended_with_any(outcome.exit_code, 1, 4));
    CHECK_THAT(reason(outcome),
               Catch::Contains("no thread ") &&
                   Catch::Contains(" could be started: Resource temporarily unavailable; RLIMIT_NPROC is "));
  }
  CHECK(refused > 3);
}

}  // namespace

TEST_CASE("a thread that cannot be started is named, whichever it is") {
  check_refused_threads(1);
}
TEST_CASE("so is that of one rank of several, and the job ends in order", "[extended]") {
  check_refused_threads(2);
}

TEST_CASE("a complete run of which a rank lacks memory or descriptors from its last step on ends with 0") {
  if (!std::getenv("LOCKSTEP_LACKING")) return;
  for (const std::string what : {"memory:1", "files:1"}) {
    CAPTURE(what);
    const Outcome outcome = lacks(2, "lacks-at-end", what);
    INFO(outcome.err);
    CHECK(has_lacked(outcome));
    CHECK(outcome.exit_code == 0);
    CHECK(lines_starting_with(outcome.err, "lockstep: ").empty());
  }
}

TEST_CASE("a failure of a rank that lacks memory or descriptors from there on still ends the job with one line") {
  if (!std::getenv("LOCKSTEP_LACKING")) return;
  for (const auto& [ranks, what] : {std::pair{1, "memory:1"}, std::pair{2, "memory:1"}, std::pair{2, "files:1"}}) {
    CAPTURE(ranks, what);
    const Outcome outcome = lacks(ranks, "lacks-and-throws", what);
    CHECK(outcome.exit_code == (ranks == 1 ? 1 : 4));
    CHECK_THAT(reason(outcome), Catch::Contains("failed on purpose"));
  }
}

TEST_CASE("a mistake that all ranks make alike is an error of the program, in a step or outside") {
  const Outcome shards = exits(3, "program-alike", 0);
  CHECK(shards.exit_code == 1);
  CHECK_THAT(reason(shards), Catch::StartsWith("lockstep: error: 2 shards for 3 ranks; expected one for each or more; "
                                               "this was after step 1, computing (exits.cpp:"));
  const Outcome unsealed = exits(2, "program-unsealed", 0);
  CHECK(unsealed.exit_code == 1);
  CHECK_THAT(reason(unsealed), Catch::StartsWith("lockstep: error: exits.cpp:") &&
                                   Catch::Contains(": variable 'w' has no memory yet: call seal()"));
}

TEST_CASE("a program that is interrupted says in which step, on a line of its own") {
  for (const int signal : {SIGINT, SIGTERM}) {
    const Outcome outcome = run_command({std::getenv("LOCKSTEP_EXITS"), "program-interrupted", std::to_string(signal)},
                                        {.environment = mpi_environment(), .timeout = std::chrono::seconds{60}});
    CHECK(outcome.exit_code == 128 + signal);
    CHECK_THAT(reason(outcome), Catch::StartsWith("lockstep: interrupted in step 2, computing (exits.cpp:"));
    CHECK_THAT(outcome.err, Catch::StartsWith("\rstep 1/9") && Catch::EndsWith(")\n"));
  }
  const Outcome job = exits(2, "program-interrupted", SIGTERM);
  CHECK(job.exit_code != 0);
  CHECK_THAT(reason(job), Catch::StartsWith("lockstep: interrupted in step 2, computing (exits.cpp:"));
}

TEST_CASE("replicas that drifted end the job with the name of the one that differs, and a code of its own", "[C-36]") {
  for (const int culprit : {0, 2}) {
    CAPTURE(culprit);
    const Outcome outcome = exits_at_once(3, "program-drift", culprit);
    CHECK(outcome.exit_code == 6);
    CHECK_THAT(reason(outcome), Catch::StartsWith("lockstep: replica " + std::to_string(culprit) + " (worker:") &&
                                    Catch::EndsWith(") differs from the others in variable 'weights'"));
  }
}

TEST_CASE("a program may catch a failed step and go on") {
  const Outcome outcome = exits(3, "program-recovers", 1);
  CHECK(outcome.exit_code == 0);
  CHECK(lines_starting_with(outcome.err, "lockstep: ").empty());
}

TEST_CASE("a connection that another rank's death breaks does not end a rank, and a handler of the program's stays") {
  for (const char* const mode : {"breaks-pipe", "breaks-pipe-handled"}) {
    const Outcome outcome = exits(2, mode, 1);
    INFO(outcome.err);
    CHECK(outcome.exit_code == 0);
  }
}

TEST_CASE("no library is unloaded when MPI ends: its threads may still be in one") {
  const Outcome outcome = exits(2, "keeps-libraries", 0);
  INFO(outcome.err);
  CHECK(outcome.exit_code == 0);
}

TEST_CASE("a rank that may open too few files says so, once for the job", "[long]") {
  for (const std::string limit : {few_open_files, "16", "63"}) {
    const std::string command = "ulimit -n " + limit + "; exec \"$LOCKSTEP_EXITS\" program-fine 0";
    const Outcome outcome = run_command({"mpirun", "-n", "2", "sh", "-c", command},
                                        {.environment = mpi_environment(), .timeout = std::chrono::seconds{60}});
    CHECK(outcome.exit_code == 2);
    CHECK(reason(outcome) == "lockstep: error: this process may open " + limit +
                                 " files (ulimit -n); expected at least 64, which MPI needs");
  }
}

TEST_CASE("processes that a launcher of another MPI started end with one line and exit code 2") {
  // A shell by the name of hydra's proxy, whose ranks look for each other's end themselves.
  const TemporaryDirectory folder;
  const auto proxy = folder.path() / "hydra_pmi_proxy";
  std::filesystem::create_symlink("/bin/bash", proxy);
  const auto in_shell = [&](const std::string& text, Environment changes, const std::string& shell = "bash") {
    changes.insert(mpi_environment().begin(), mpi_environment().end());
    return run_command({shell, "-c", text}, {.environment = changes, .timeout = std::chrono::seconds{20}});
  };
  // What MPICH's mpiexec makes of two processes, here as children of a shell. The one that speaks ends first, as many
  // launchers end the others then. On a busy machine both may have ended before the shell looks.
  Outcome apart;
  for (int tries = 0; tries < 5 && apart.out != "2 1\n2\n"; ++tries)
    apart = in_shell(
        "for rank in 1 0; do PMI_RANK=$rank PMI_SIZE=2 \"$LOCKSTEP_EXITS\" fine 0 & done; first=$!;"
        "wait -n -p ended; echo $? $((ended == first)); wait -n; echo $?",
        {{"LOCKSTEP_TEST_SLOW_END", "1"}}, proxy);
  CHECK(apart.out == "2 1\n2\n");
  CHECK_THAT(reason(apart), Catch::StartsWith("lockstep: error: mpiexec of MPICH, Intel MPI or another PMI launcher "
                                              "started 2 processes as one job, but this program's MPI, "));
  CHECK(apart.err == reason(apart) + "\n");

  Environment step{{"SLURM_STEP_NUM_TASKS", "4"}};
  // With these, Debian's Open MPI would not start.
  if (std::filesystem::exists("/etc/debian_version"))
    step.merge(Environment{{"SLURM_NODELIST", "a"}, {"SLURM_STEPID", "0"}});
  const Outcome by_srun = in_shell("exec \"$LOCKSTEP_EXITS\" fine 0", step);
  CHECK(by_srun.exit_code == 2);
  CHECK_THAT(reason(by_srun), Catch::StartsWith("lockstep: error: srun started 4 processes "));
  if (step.contains("SLURM_STEPID") && this_mpi == lockstep::MpiKind::open_mpi_4) {
    // One process that would not start is not one that trains alone, also on a terminal of srun's.
    step["SLURM_STEP_NUM_TASKS"] = "1";
    for (const char* terminal : {"", "1"}) {
      if (*terminal) step["SLURM_PTY_PORT"] = terminal;
      const Outcome alone = in_shell("exec \"$LOCKSTEP_EXITS\" fine 0", step);
      CHECK(alone.exit_code == 2);
      CHECK_THAT(alone.err, Catch::StartsWith("lockstep: error: srun started 1 process, but this program's MPI, ") &&
                                Catch::EndsWith("or srun --mpi=pmix\n"));
    }
  }

  // A healthy job in the shell of others.
  const Outcome inside = in_shell("exec mpirun -n 1 \"$LOCKSTEP_EXITS\" fine 0",
                                  {{"PMI_SIZE", "2"}, {"PMI_RANK", "1"}, {"SLURM_STEP_NUM_TASKS", "4"}});
  INFO(inside.err);
  CHECK(inside.exit_code == 0);
}
