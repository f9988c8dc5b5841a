// One rank that fails at each point of a job's life, in each way: who is named, and that the job ends.
#include <csignal>
#include <cstdlib>
#include <optional>

#include <catch2/catch.hpp>
#include <fmt/format.h>

#include "support/hosts.hpp"
#include "support/job.hpp"
#include "support/run_tests.hpp"
#include "support/this_mpi.hpp"

using namespace lockstep::test;

namespace {

constexpr int ranks = 3;

/// The stall timeout, the promise, the start.
constexpr std::chrono::seconds limit{1 + 5 + 3};

Outcome fail_at(const std::string& point, const std::string& fault, int culprit, int of_ranks = ranks,
                const Environment& more = {}) {
  Environment environment = more;
  environment.insert(mpi_environment().begin(), mpi_environment().end());
  const Outcome outcome = run_command(
      {"mpirun", "-n", std::to_string(of_ranks), std::getenv("LOCKSTEP_POINTS"), point, fault, std::to_string(culprit)},
      {.environment = environment, .timeout = std::chrono::seconds{60}});
  INFO("stderr: " << outcome.err);
  CHECK_FALSE(outcome.timed_out);
  CHECK(outcome.seconds < on_this_machine(limit));
  CHECK(processes_left(outcome.marker).empty());
  return outcome;
}

void check_code(const Outcome& outcome, int code) {
  INFO("stderr: " << outcome.err);
  CHECK(outcome.exit_code == code);
}

void check_names(const Outcome& outcome, int culprit, const std::string& told) {
  const auto lines = lines_starting_with(outcome.err, "lockstep:");
  INFO("stderr: " << outcome.err);
  REQUIRE(lines.size() == 1);
  CHECK_THAT(lines.front(), Catch::StartsWith(fmt::format("lockstep: replica {} ", culprit)));
  CHECK_THAT(lines.front(), Catch::Contains(told));
}

/// From where the ranks watch each other into a step. The points are halved, so that two test cases share the waiting.
const std::vector<std::string> early_points{"body", "initial value", "before seal", "replica code", "merge function"};
/// From there to where the ranks have agreed to leave.
const std::vector<std::string> late_points{"nested merge function", "before close", "agreed computation", "alone",
                                           "last"};
/// The same, and where the others have agreed on a sum and wait for this rank's part.
const std::vector<std::string> late_lost_points = [] {
  auto points = late_points;
  points.push_back("fence");
  return points;
}();

/// Every second of them, from that number on. Whether a rank is there at all is found in the same way at every point:
/// each point has one of kills and stops every day, and both with [extended].
std::vector<std::string> every_second(const std::vector<std::string>& points, std::size_t first) {
  std::vector<std::string> chosen;
  for (std::size_t i = first; i < points.size(); i += 2) chosen.push_back(points[i]);
  return chosen;
}

/// A fault at each of the points, each time on another rank. Any exit code but 0 without `code`.
void check_each(const std::vector<std::string>& points, const std::string& fault, std::optional<int> code,
                const std::string& told) {
  for (int i = 0; const std::string& point : points) {
    const int culprit = i++ % ranks;
    CAPTURE(point, culprit);
    // A rank that throws, or finds another stopped, aborts the job after its line. Ranks that lost another one need the
    // second to say so. While MPI starts or ends, mpirun 4.1 may crash if it kills at once.
    const bool ends_at_once = fault == "throw" || fault == "stop";
    const Outcome outcome =
        fail_at(point, fault, culprit, ranks, ends_at_once ? Environment{kills_at_once} : Environment{});
    if (code) {
      check_code(outcome, *code);
    } else {
      CHECK(outcome.exit_code != 0);
    }
    check_names(outcome, culprit, told);
  }
}

void check_ended_before_mpi(const std::string& fault, const std::string& point, int culprit) {
  CAPTURE(point, fault, culprit);
  const Outcome outcome = fail_at(point, fault, culprit);
  CHECK(outcome.exit_code != 0);
  // Others may not have begun by then, and nobody can tell what they are.
  const auto lines = lines_starting_with(outcome.err, "lockstep:");
  if (lines.empty()) return;
  if (lines.front().find("is gone") != std::string::npos) return check_names(outcome, culprit, "is gone");
  CHECK_THAT(lines.front(), Catch::StartsWith(fmt::format("lockstep: world rank {} (host ", culprit)) &&
                                Catch::Contains(") has not joined the job: its process has ended; it was waited for"));
}

/// A rank that is killed while MPI is "starting" or "ending", each of them.
void check_killed_by(const std::string& point, const std::string& doing) {
  const int culprit = GENERATE(0, 2);
  CAPTURE(culprit);
  const Outcome outcome = fail_at(point, "kill", culprit);
  if (!may_be_unnamed(outcome.exit_code)) check_code(outcome, code_of_killed_at_end);
  if (may_be_unnamed(outcome.exit_code) && lines_starting_with(outcome.err, "lockstep:").empty()) return;
  check_names(outcome, culprit, "is gone: its process ended while the job was " + doing);
}

/// Stops of half the stall timeout are none, and one that is observed ends no job.
void check_pauses(const std::string& point, const std::string& doing) {
  const std::string fault = GENERATE("pauses", "observed");
  CAPTURE(fault);
  const Outcome outcome = fail_at(point, fault, 1);
  check_code(outcome, 0);
  CHECK(lines_starting_with(outcome.err, "lockstep:").empty());
  const std::string warning = "warning: replica 1 has stopped: it was waited for 1 s while the job was " + doing;
  const auto first = outcome.err.find(warning);
  INFO("stderr: " << outcome.err);
  CHECK((first != std::string::npos) == (fault == "observed"));
  CHECK(outcome.err.find(warning, first + 1) == std::string::npos);
}

}  // namespace

TEST_CASE("a rank that is killed before MPI has started ends the job", "[long]") {
  check_ended_before_mpi("kill", "options", 0);
  check_ended_before_mpi("kill", "MPI_Init", 1);
}
TEST_CASE("so does another one", "[long][extended]") {
  check_ended_before_mpi("kill", "options", 1);
  check_ended_before_mpi("kill", "MPI_Init", 0);
}
TEST_CASE("a rank that exits before MPI has started ends the job", "[long][extended]") {
  check_ended_before_mpi("exit", GENERATE("options", "MPI_Init"), GENERATE(0, 1));
}

TEST_CASE("a rank that throws up to a merge function is named, and the job ends with 4", "[B-40][B-47]") {
  check_each(early_points, "throw", 4, "failed: failed on purpose");
}
TEST_CASE("a rank that throws after a merge function is named, and the job ends with 4", "[B-40][B-47]") {
  check_each(late_points, "throw", 4, "failed: failed on purpose");
}

TEST_CASE("a rank that is killed up to a merge function is named, and the job ends with 137", "[B-46]") {
  check_each(every_second(early_points, 0), "kill", code_of_killed(), "is gone: its process ended");
}
TEST_CASE("a rank that is killed after a merge function is named, and the job ends with 137", "[B-46]") {
  check_each(every_second(late_lost_points, 0), "kill", code_of_killed(), "is gone: its process ended");
}
TEST_CASE("so is one that is killed at the points between", "[extended]") {
  check_each(every_second(early_points, 1), "kill", code_of_killed(), "is gone: its process ended");
  check_each(every_second(late_lost_points, 1), "kill", code_of_killed(), "is gone: its process ended");
}

TEST_CASE("a rank that exits up to a merge function is named", "[extended]") {
  check_each(early_points, "exit", {}, "is gone: its process ended");
}
TEST_CASE("a rank that exits after a merge function is named", "[extended]") {
  check_each(late_lost_points, "exit", {}, "is gone: its process ended");
}

TEST_CASE("a rank that stops up to a merge function is named, and the job ends with 5", "[B-45]") {
  check_each(every_second(early_points, 1), "stop", 5, "has stopped: no sign of life for 1 s");
}
TEST_CASE("a rank that stops after a merge function is named, and the job ends with 5", "[B-45]") {
  check_each(every_second(late_lost_points, 1), "stop", 5, "has stopped: no sign of life for 1 s");
}
TEST_CASE("so is one that stops at the points between", "[extended]") {
  check_each(every_second(early_points, 0), "stop", 5, "has stopped: no sign of life for 1 s");
  check_each(every_second(late_lost_points, 0), "stop", 5, "has stopped: no sign of life for 1 s");
}

TEST_CASE("no rank begins to end MPI while the job is being ended, even if the one that had stopped goes on") {
  const Outcome outcome = fail_at("last", "nap", 1);
  check_code(outcome, 5);
  check_names(outcome, 1, "has stopped: no sign of life for 1 s");
  CHECK(lines_starting_with(outcome.err, "MPI_Finalize").empty());
}

TEST_CASE("a rank that computes for ever in a step that all agreed on is late for its first sum", "[B-45]") {
  const Outcome outcome = fail_at("agreed computation", "busy", 1);
  check_code(outcome, 5);
  check_names(outcome, 1, "is late: sum #1 of the step (points.cpp:");
  check_names(outcome, 1, ") was waited for 1 s; it runs, and was in step 3, computing (points.cpp:");
}

namespace {

void check_stopped_at_start(const std::string& point, int culprit) {
  CAPTURE(point, culprit);
  // What it is asked for comes from the options, which a rank that stops in them has not got.
  const Outcome outcome = fail_at(point, "stop", culprit);
  // On a busy machine mpirun 4.1 may die of a SIGPIPE, or of a SIGSEGV in its PMIx, while it ends a job that is still
  // starting.
  const bool mpirun_died =
      outcome.exit_code == 128 + SIGPIPE ||
      (outcome.exit_code == 128 + SIGSEGV && outcome.err.find("PMIx_server_finalize") != outcome.err.npos);
  const bool is_known = mpirun_died || is_killed_with_stopped(outcome.exit_code);
  check_code(outcome, is_known ? outcome.exit_code : code_of_stopped_without_mpi);
  check_names(outcome, culprit, "has stopped: it was waited for 1 s while the job was starting");
}

void check_stopped_at_end(const std::string& point, int culprit) {
  CAPTURE(point, culprit);
  const Outcome outcome = fail_at(point, "stop", culprit);
  check_code(outcome, code_of_stopped_without_mpi);
  check_names(outcome, culprit, "has stopped: it was waited for 1 s while the job was ending");
}

}  // namespace

TEST_CASE("a rank that stops while MPI starts is named, and the job ends with 5", "[B-45]") {
  check_stopped_at_start("options", 2);
  check_stopped_at_start("MPI_Init", 0);
}
TEST_CASE("a rank that stops while MPI ends is named, and the job ends with 5", "[B-45]") {
  check_stopped_at_end("MPI_Finalize", 0);
  check_stopped_at_end("after MPI", 2);
}
TEST_CASE("so is another one that stops while MPI starts or ends", "[extended]") {
  check_stopped_at_start("options", 0);
  check_stopped_at_start("MPI_Init", 2);
  check_stopped_at_end("MPI_Finalize", 2);
  check_stopped_at_end("after MPI", 0);
}

TEST_CASE("while MPI starts, stops of half the stall timeout are none, and one that is observed ends no job") {
  check_pauses("MPI_Init", "starting");
}
TEST_CASE("while MPI ends, stops of half the stall timeout are none, and one that is observed ends no job") {
  check_pauses("MPI_Finalize", "ending");
}

TEST_CASE("a rank that stops on another host while MPI ends is waited for 2 s longer than the stall timeout",
          "[hosts]") {
  if (const auto reason = Hosts::why_not()) return skip("this machine cannot play several hosts: " + *reason);
  const Hosts hosts{2};
  const Outcome outcome = run_on(hosts, 1, {std::getenv("LOCKSTEP_POINTS"), "MPI_Finalize", "stop", "1"},
                                 {.timeout = std::chrono::seconds{60}}, keepalive());
  INFO("stderr: " << outcome.err);
  CHECK(outcome.exit_code != 0);
  if (ends_with_any_rank) CHECK(outcome.seconds < on_this_machine(limit + std::chrono::seconds{2}));
  check_names(outcome, 0, "waited 3 s for ranks of other nodes while the job was ending");
  CHECK(processes_left(outcome.marker).empty());
}

TEST_CASE("a rank on another host that does not come to make a group is named", "[hosts]") {
  if (const auto reason = Hosts::why_not()) return skip("this machine cannot play several hosts: " + *reason);
  const Hosts hosts{2};
  const Outcome outcome = run_on(hosts, 1, {std::getenv("LOCKSTEP_EXITS"), "groups-not-made", "1"},
                                 {.timeout = std::chrono::seconds{60}}, keepalive());
  INFO("stderr: " << outcome.err);
  CHECK(outcome.exit_code == 5);
  check_names(outcome, 1, " is late: the making of a group (exits.cpp:");
  CHECK(processes_left(outcome.marker).empty());
}

TEST_CASE("a rank that is killed while MPI starts is named, and the job ends with 137", "[B-46]") {
  check_killed_by("after MPI_Init", "starting");
}
TEST_CASE("a rank that is killed while MPI ends is named, and the job ends with 137", "[B-46]") {
  check_killed_by("MPI_Finalize", "ending");
}

TEST_CASE("a rank that stops behind MPI's end is continued, and the job ends with 0", "[B-45]") {
  const Outcome outcome = fail_at("last way", "stop", 0);
  check_code(outcome, 0);
  CHECK(lines_starting_with(outcome.err, "lockstep:").empty());
}

TEST_CASE("where the options are wrong, a rank that is late in its end blames nobody") {
  if (!ends_with_any_rank) {
    WARN("not tried: this launcher does not end a job when one of its ranks has ended");
    return;
  }
  // The late one has MPI's end behind it when mpirun tells it to end because the other ended with 2.
  const Outcome outcome = fail_at("after MPI", "late", 0, 2);
  check_code(outcome, 2);
  CHECK(lines_starting_with(outcome.err, "lockstep:") == std::vector<std::string>{"lockstep: error: wrong on purpose"});
}

/// Where MPI may be called from the main thread only, because it gives no more or because the program wants no more.
/// Another thread that calls it would change the exit code.
void check_with_one_thread(const std::string& point, const std::string& fault, int code, const std::string& told) {
  const char* const library = std::getenv("LOCKSTEP_ONE_THREAD");
  const Environment level = library ? Environment{{"LD_PRELOAD", library}} : Environment{};
  const Environment wanted{{"LOCKSTEP_TEST_MAIN_THREAD", "1"}};
  const Outcome outcome = fail_at(point, fault, 1, 2, library && fault != "stop" ? level : wanted);
  check_code(outcome, code);
  if (code != 0) check_names(outcome, 1, told);
}

TEST_CASE("where only the main thread may call MPI, a job works, and a rank that is killed is named", "[B-46]") {
  check_with_one_thread("nowhere", "throw", 0, "");
  check_with_one_thread("replica code", "kill", code_of_killed(), "is gone: its process ended");
}
TEST_CASE("where only the main thread may call MPI, a rank that stops is named, and the job ends with 5", "[B-45]") {
  check_with_one_thread("merge function", "stop", code_of_stopped_without_mpi, "has stopped: no sign of life for 1 s");
}
TEST_CASE("where only the main thread may call MPI, a rank that is late is named, and the job ends with 5", "[B-45]") {
  check_with_one_thread("agreed computation", "busy", 5, "is late: sum #1 of the step");
}
TEST_CASE("where only the main thread may call MPI, a rank that throws is named, and the job ends with 4",
          "[B-40][B-47]") {
  const std::string point = GENERATE("before close", "body");
  check_with_one_thread(point, "throw", 4, "failed: failed on purpose");
}
TEST_CASE("where only the main thread may call MPI, ranks that differ are named, and the job ends with 3") {
  check_with_one_thread("nowhere", "differs", 3, "is at same_on_all #1");
}

TEST_CASE("no fault at any point is none") {
  const Outcome outcome = fail_at("nowhere", "throw", 0);
  check_code(outcome, 0);
  CHECK(lines_starting_with(outcome.err, "lockstep:").empty());
}
