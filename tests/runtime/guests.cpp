// Runtimes in a program that owns MPI: what they share with it, what they leave behind, and who ends the job.
#include <chrono>
#include <cstdlib>

#include <catch2/catch.hpp>

#include "support/hosts.hpp"
#include "support/job.hpp"
#include "support/run_tests.hpp"
#include "support/this_mpi.hpp"

using namespace lockstep::test;

namespace {

Outcome guests(int ranks, const std::string& mode, int culprit, const std::string& count = "0",
               std::chrono::seconds timeout = std::chrono::seconds{120}, const Environment& more = {}) {
  Environment environment = more;
  environment.insert(mpi_environment().begin(), mpi_environment().end());
  const Outcome outcome = run_command(
      {"mpirun", "-n", std::to_string(ranks), std::getenv("LOCKSTEP_GUEST"), mode, std::to_string(culprit), count},
      {.environment = environment, .timeout = timeout});
  INFO("stdout: " << outcome.out << "\nstderr: " << outcome.err);
  CHECK_FALSE(outcome.timed_out);
  CHECK(processes_left(outcome.marker).empty());
  return outcome;
}

void check_fine(const Outcome& outcome) {
  INFO("stdout: " << outcome.out << "\nstderr: " << outcome.err);
  CHECK(outcome.exit_code == 0);
  CHECK(lines_starting_with(outcome.err, "lockstep:").empty());
}

void check_ended(const Outcome& outcome, int code, const std::string& told) {
  INFO("stderr: " << outcome.err);
  const auto lines = lines_starting_with(outcome.err, "lockstep:");
  if (lines.empty() && may_be_unnamed(outcome.exit_code)) return;
  CHECK((outcome.exit_code == code || may_be_unnamed(outcome.exit_code)));
  REQUIRE(lines.size() == 1);
  CHECK_THAT(lines.front(), Catch::StartsWith("lockstep: replica 1 (worker:1, world rank 3, host "));
  CHECK_THAT(lines.front(), Catch::Contains(told));
}

}  // namespace

TEST_CASE("two runtimes train beside the program's own messages, and leave its process as it was") {
  check_fine(guests(4, "works", 0));
}

TEST_CASE("libraries that know nothing of each other share a job, on overlapping communicators, to the last of them") {
  check_fine(guests(5, "shares", 0));
}

TEST_CASE("guests of a program with MPI_THREAD_MULTIPLE train there, and end the job by a call of MPI's") {
  const Environment multiple{{"LOCKSTEP_TEST_MULTIPLE", "1"}};
  check_fine(guests(4, "works", 0, "0", std::chrono::seconds{120}, multiple));
  check_ended(guests(4, "stop", 3, "0", std::chrono::seconds{120}, multiple), 5,
              "has stopped: no sign of life for 1 s");
}

TEST_CASE("guests whose program calls MPI_Finalize first end there, in order, and agree on nothing afterwards") {
  check_fine(guests(4, "finalizes", 0));
}

TEST_CASE("runtimes that come and go leak no communicator, thread or file") {
  const char* const many = std::getenv("LOCKSTEP_MANY_RUNTIMES");
  check_fine(guests(4, "many", 0, many ? many : "300", std::chrono::seconds{600}));
}

TEST_CASE("a second runtime, one on another thread than MPI was started on, no communicator and a signal are refused") {
  check_fine(guests(2, "refused", 0));
}

TEST_CASE("of a guest, a rank that is gone or stops ends the whole job, and is named with its rank of the world") {
  check_ended(guests(4, "kill", 3), code_of_killed(), "is gone: its process ended");
  // MPI_Init lets no watchdog call MPI_Abort.
  check_ended(guests(4, "stop", 3), code_of_stopped_without_mpi, "has stopped: no sign of life for 1 s");
}

TEST_CASE("of a guest, what its ranks agree on ends the whole job") {
  check_ended(guests(4, "throw", 3), 4, "failed: failed on purpose");
  check_ended(guests(4, "alone", 3), 4, "failed: it left with an exception");
  check_ended(guests(4, "first_leaves", 3), 4, "failed: it left with an exception");
  check_ended(guests(4, "last_leaves", 3), 4, "failed: it left with an exception");
  check_ended(guests(4, "differs", 3), 3, "is at same_on_all");
  check_ended(guests(4, "skip", 3), 3, "has finished step 1");
}

TEST_CASE("of a guest, what its ranks agree on can be an exception, after which the job goes on") {
  for (const auto& [mode, told] :
       {std::pair{"report-throw", "failed: failed on purpose"}, std::pair{"report-differs", "is at same_on_all"},
        std::pair{"report-skip", "has finished step 1"}}) {
    const Outcome outcome = guests(4, mode, 3);
    check_fine(outcome);
    CHECK_THAT(outcome.out, Catch::StartsWith("replica 1 (worker:1, world rank 3, host ") && Catch::Contains(told));
  }
  check_fine(guests(4, "report-alone", 3));
  check_fine(guests(4, "report-alike", 3));
}

TEST_CASE("options of run_program that throw on some ranks of a program that owns MPI end the job at once") {
  const Outcome outcome = guests(4, "options", 3);
  INFO("stderr: " << outcome.err);
  CHECK(outcome.exit_code == 2);
  CHECK(lines_starting_with(outcome.err, "lockstep:") ==
        std::vector<std::string>{"lockstep: error: expected other options"});
}

TEST_CASE("a runtime after MPI_Finalize, or in a process that MPI_Comm_spawn has started, is refused") {
  // Open MPI and Intel MPI have no shared memory between the two. That ranks may speak at their end is too much for
  // MPICH's launcher.
  check_fine(guests(1, "spawns", 0, "0", std::chrono::seconds{60},
                    {{"OMPI_MCA_btl", "self,vader,tcp"},
                     {"OMPI_MCA_btl_tcp_if_include", "lo"},
                     {"I_MPI_FABRICS", "shm:ofi"},
                     {"LOCKSTEP_TEST_PLAIN_MPIRUN", "1"}}));
}

TEST_CASE("guests say nothing of a job that is interrupted") {
  const Outcome outcome = guests(4, "interrupted", 3);
  CHECK(outcome.exit_code != 0);
  CHECK(lines_starting_with(outcome.err, "lockstep:").empty());
}

TEST_CASE("of a guest, run_program returns the exit code, and the job goes on") {
  const Outcome outcome = guests(4, "report_code", 3);
  CHECK(outcome.exit_code == 0);
  CHECK(lines_starting_with(outcome.err, "lockstep: replica 1 (worker:1, world rank 3, host ").size() == 1);
}

TEST_CASE(
    "of a guest on several hosts, a rank that is killed ends the whole job, and is named with its rank of the world",
    "[hosts]") {
  if (const auto reason = Hosts::why_not()) return skip("this machine cannot play several hosts: " + *reason);
  const Hosts hosts{2};
  check_fine(run_on(hosts, 2, {std::getenv("LOCKSTEP_GUEST"), "works", "0"}));
  // As include/README.md tells programs that start MPI themselves, for Open MPI 5. Others do not know it.
  const Environment late_abort{{"OMPI_MCA_opal_abort_delay", "5"}};
  const Outcome outcome = run_on(hosts, 2, {std::getenv("LOCKSTEP_GUEST"), "kill", "3"}, {.environment = late_abort});
  // The other rank of its host belongs to another runtime.
  if (interrupted_job_may_be_silent && lines_starting_with(outcome.err, "lockstep:").empty())
    CHECK(outcome.exit_code == code_of_killed());
  else
    check_ended(outcome, code_of_killed(), "is gone: its process ended");
}
