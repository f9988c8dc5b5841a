// What tests start jobs with: a test must notice what a job leaves behind.
#include "support/job.hpp"

#include <cstdlib>

#include <catch2/catch.hpp>

#include "support/run_tests.hpp"

using namespace lockstep::test;
using namespace std::chrono_literals;

namespace {

Outcome shell(const std::string& script, const CommandOptions& options = {}) {
  return run_command({"sh", "-c", script}, options);
}

}  // namespace

TEST_CASE("a command's output, errors and exit code are kept apart") {
  const Outcome outcome = shell("echo one; echo two >&2; echo three; exit 7");
  CHECK(outcome.exit_code == 7);
  CHECK_FALSE(outcome.timed_out);
  CHECK(outcome.out == "one\nthree\n");
  CHECK(outcome.err == "two\n");
}

TEST_CASE("a command that succeeds ends with 0, one that is killed with 128 and the signal") {
  CHECK(shell("true").exit_code == 0);
  CHECK(shell("kill -KILL $$").exit_code == 137);
}

TEST_CASE("arguments reach the command as they are") {
  CHECK(run_command({"printf", "<%s>", "a b", "", "$HOME", "'"}).out == "<a b><><$HOME><'>");
}

TEST_CASE("a command that is not there is an error that names it") {
  CHECK_THROWS_WITH(run_command({"no-such-command"}), Catch::Contains("no-such-command"));
  CHECK_THROWS_AS(run_command({}), std::invalid_argument);
}

TEST_CASE("a command gets this process's environment, and the changes to it") {
  setenv("LOCKSTEP_TEST_KEPT", "kept", 1);
  setenv("LOCKSTEP_TEST_CHANGED", "old", 1);
  const std::string script = "echo $LOCKSTEP_TEST_KEPT $LOCKSTEP_TEST_CHANGED $LOCKSTEP_TEST_ADDED";
  const Environment changes{{"LOCKSTEP_TEST_CHANGED", "new"}, {"LOCKSTEP_TEST_ADDED", "added"}};
  CHECK(shell(script, {.environment = changes}).out == "kept new added\n");
}

TEST_CASE("a command reads nothing, even from a terminal") {
  CHECK(run_command({"cat"}, {.timeout = 5s}).out == "");
}

TEST_CASE("more output than a pipe holds arrives whole") {
  CHECK(shell("head -c 1000000 /dev/zero").out.size() == 1'000'000);
}

TEST_CASE("a command that takes too long is ended, and what it had written is there") {
  const Outcome outcome = shell("echo begun; sleep 30", {.timeout = 500ms});
  CHECK(outcome.timed_out);
  CHECK(outcome.exit_code == 143);
  CHECK(outcome.out == "begun\n");
  CHECK(outcome.seconds < 25s);
  CHECK(processes_left(outcome.marker).empty());
}

TEST_CASE("neither a deaf process, nor a stopped one, nor one in a group of its own survives the timeout") {
  const Outcome outcome = shell(
      "trap '' TERM; setsid sleep 31 & sleep 32 & setsid sh -c 'kill -STOP $$' & "
      "while :; do sleep 0.1; done",
      {.timeout = 800ms});
  CHECK(outcome.timed_out);
  CHECK(outcome.exit_code == 137);
  CHECK(outcome.seconds < 25s);
  CHECK(processes_left(outcome.marker).empty());
}

TEST_CASE("a process that a command leaves behind is not waited for, and is found") {
  const Outcome outcome = shell("setsid sleep 33 & until grep -q sleep /proc/$!/comm; do sleep 0.01; done");
  CHECK_FALSE(outcome.timed_out);
  CHECK(outcome.seconds < 25s);
  const auto left = processes_left(outcome.marker, 0s);
  REQUIRE(left.size() == 1);
  CHECK_THAT(left[0], Catch::EndsWith("sleep 33 "));
  CHECK(processes_left(shell("true").marker).empty());  // another run's processes are not this one's
  REQUIRE(shell("kill " + left[0].substr(0, left[0].find(' '))).exit_code == 0);
  CHECK(processes_left(outcome.marker).empty());
}

// The next two are run by the one after them.
TEST_CASE("a test case is skipped", "[.skipped]") {
  return skip("on purpose");
}
TEST_CASE("a test case fails 77 times", "[.fails]") {
  for (int failure = 0; failure < 77; ++failure) CHECK(failure < 0);
}

TEST_CASE("a program of which a test case is skipped exits with 77, and none that fails does") {
  const std::string own = std::filesystem::read_symlink("/proc/self/exe");
  const Outcome skipped = run_command({own, "[skipped]"});
  CHECK(skipped.exit_code == 77);
  CHECK_THAT(skipped.out, Catch::Contains("skipped: on purpose\n"));
  for (const std::string chosen : {"[fails]", "[skipped],[fails]"}) {
    const int code = run_command({own, chosen}).exit_code;
    CHECK((code != 0 && code != 77));
  }
}

TEST_CASE("a machine that does other things may take longer than is promised, and no other takes less") {
  CHECK(on_this_machine(1s) >= 1s);
  CHECK(on_this_machine(1s) < 1000s);
}

TEST_CASE("a job starts its number of ranks of the program, and ends as they do") {
  const char* set = std::getenv("LOCKSTEP_TRAIN");
  const std::string before = set ? set : "";
  setenv("LOCKSTEP_TRAIN", "/bin/sh", 1);
  const Outcome ranks = run_job(3, {"-c", "echo $OMPI_COMM_WORLD_RANK of $OMPI_COMM_WORLD_SIZE, $WORD"},
                                {.environment = {{"WORD", "hi"}}});
  CHECK(ranks.exit_code == 0);
  for (const std::string line : {"0 of 3, hi", "1 of 3, hi", "2 of 3, hi"})
    CHECK(lines_starting_with(ranks.out, line).size() == 1);

  const Outcome failed = run_job(2, {"-c", "if [ $OMPI_COMM_WORLD_RANK = 1 ]; then exit 5; fi; exec sleep 34"});
  CHECK(failed.exit_code == 5);
  CHECK(processes_left(failed.marker).empty());

  const Outcome stuck = run_job(2, {"-c", "kill -STOP $$"}, {.timeout = 1s});
  CHECK(stuck.timed_out);
  CHECK(processes_left(stuck.marker).empty());

  unsetenv("LOCKSTEP_TRAIN");
  CHECK_THROWS_WITH(run_job(1, {}), Catch::Contains("LOCKSTEP_TRAIN is not set"));
  if (set) setenv("LOCKSTEP_TRAIN", before.c_str(), 1);
}

TEST_CASE("lines are found with and without a last line end") {
  CHECK(last_line("a\nb\n") == "b");
  CHECK(last_line("a\nb\n\n\n") == "b");
  CHECK(last_line("a") == "a");
  CHECK(last_line("\n") == "");
  CHECK(last_line("") == "");
  CHECK(lines_starting_with("x 1\ny\n\nx 2", "x") == std::vector<std::string>{"x 1", "x 2"});
  CHECK(lines_starting_with("", "").empty());
}

TEST_CASE("a temporary directory is empty at first, of its own, and gone at the end with what is in it") {
  std::filesystem::path path;
  {
    const TemporaryDirectory one, other;
    path = one.path();
    CHECK(one.path() != other.path());
    CHECK(std::filesystem::is_empty(path));
    const std::string bytes{"a\0b\r\n", 5};
    CHECK(read_file(one.write("file", bytes)) == bytes);
    CHECK_THROWS_WITH(one.write("missing/file", ""), Catch::Contains("missing/file"));
  }
  CHECK_FALSE(std::filesystem::exists(path));
  CHECK_THROWS_WITH(read_file(path), Catch::Contains(path.string()));
}
