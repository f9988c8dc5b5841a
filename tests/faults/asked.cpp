// Jobs that are asked where everyone is, and what is left of a rank that hangs.
#include <chrono>
#include <csignal>
#include <filesystem>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <catch2/catch.hpp>

#include "faults/running_job.hpp"

using namespace lockstep::test;
using namespace std::chrono_literals;

namespace {

/// Tables that a job has written to stderr.
std::size_t tables_in(const std::string& err) {
  return lines_starting_with(err, "Where the 2 ranks are, ").size();
}

/// A job with a folder, and what it left there.
struct AskedJob {
  AskedJob(const Launch& start, const std::string& fault, const Arguments& arguments, const char* stall_timeout)
      : job{[start, fault](const Arguments& all, const CommandOptions& options) {
              CommandOptions with_fault = options;
              if (!fault.empty()) with_fault.environment.emplace("LOCKSTEP_FAULT", fault);
              return start(all, with_fault);
            },
            arguments, memory, Arguments{"--run-dir", folder.path() / "run"} + model, stall_timeout} {}

  /// The test fails if the job ends before.
  std::string wait_for_table() const {
    job.wait_until([&] { return std::filesystem::exists(run() / "where.txt"); });
    return read_file(run() / "where.txt");
  }

  /// A signal would end it now.
  void wait_for_mpirun() const {
    job.wait_until([&] { return job.find(std::nullopt).has_value(); });
  }

  void wait_for_steps(std::size_t count) const {
    const auto steps = [&] { return lines_starting_with(read_file(run() / "metrics.jsonl"), R"({"kind":"train")"); };
    job.wait_until([&] { return steps().size() >= count; });
  }

  Outcome end() {
    std::chrono::duration<double> after{0};
    Outcome outcome = job.end(after);
    INFO("stderr: " << outcome.err);
    CHECK_FALSE(outcome.timed_out);
    CHECK(processes_left(outcome.marker) == std::vector<std::string>{});
    return outcome;
  }

  std::filesystem::path run() const { return folder.path() / "run"; }

  /// The last table, which stderr has too.
  std::string table(const Outcome& outcome, std::size_t tables = 1) const {
    const std::string text = read_file(run() / "where.txt");
    INFO("stderr: " << outcome.err);
    CHECK(tables_in(outcome.err) == tables);
    CHECK(outcome.err.find(text) != std::string::npos);
    CHECK(lines_starting_with(text, "  replica ").size() == 2);
    return text;
  }

  static inline const Arguments model{"--data", small_data(), "--hidden", "16"};
  SharedMemory memory;
  TemporaryDirectory folder;
  RunningJob job;
};

/// The line of the table about a rank.
std::string row(const std::string& table, int rank) {
  const auto rows = lines_starting_with(table, fmt::format("  replica {0} (worker:{0}, host ", rank));
  REQUIRE(rows.size() == 1);
  return rows.front();
}

}  // namespace

TEST_CASE("SIGUSR2 to lockstep-run says once where all ranks are, and the job goes on to the same bytes") {
  const Arguments run{"--steps", "20", "--eval-every", "1000000"};
  const TemporaryDirectory folder;
  const std::string err = folder.path() / "stderr";
  AskedJob asked{with_stderr_in(err, supervised({})), "stop:1:9", run, "60"};
  asked.wait_for_mpirun();
  asked.job.send(SIGUSR2, std::nullopt, "lockstep-run");
  asked.job.wait_until_it_trains();
  asked.wait_for_steps(9);
  asked.job.wait_until([&] { return tables_in(read_file(err)) == 1; });
  // Rank 1 may have answered before it stopped. Rank 0 takes what comes until its next look for the same question.
  std::this_thread::sleep_for(500ms);
  std::filesystem::remove(asked.run() / "where.txt");
  asked.job.send(SIGUSR2, std::nullopt, "lockstep-run");
  std::size_t asked_times = 2;
  const auto silent_row = [&] { return row(asked.wait_for_table(), 1); };
  while (silent_row().find(" s  no heartbeat for ") == std::string::npos) {
    std::filesystem::remove(asked.run() / "where.txt");
    asked.job.send(SIGUSR2, 0);
    ++asked_times;
  }
  // The signal that lockstep-run has sent to this rank comes now: it was answered long ago.
  asked.job.send(SIGCONT, 1);
  const Outcome outcome = asked.end();
  INFO("stderr: " << outcome.err);
  CHECK(outcome.exit_code == 0);
  const std::string table = asked.table(outcome, asked_times);
  CHECK_THAT(row(table, 0), Catch::Contains(" MiB ") && Catch::Contains(" s  in step 10, waiting at "));
  CHECK_THAT(row(table, 1), Catch::Contains(" MiB ") && Catch::Contains(" s; was in step 10, computing"));
  CHECK(lines_starting_with(outcome.err, "lockstep") ==
        std::vector<std::string>{"lockstep-run: SIGUSR2: the ranks say where they are once they have met"});
  CHECK(Json::parse(last_line(outcome.out)).at("weights_digest") == train(1, AskedJob::model + run).digest());
}

TEST_CASE("ranks that are asked before they have met answer once they have, though a restart comes between") {
  const TemporaryDirectory folder;
  const std::string err = folder.path() / "stderr";
  // Starts no rank until it has been asked, and fails then.
  const std::string mpirun = folder.write("mpirun", R"(here=${0%/*}
[ -e "$here/asked" ] && exec mpirun "$@"
touch "$here/starts"
while ! [ -e "$here/asked" ]; do sleep 0.01; done
exit 137
)");
  const Arguments launcher{program("LOCKSTEP_RUN"), "--mpirun", "sh " + mpirun, "-n", "2", "--"};
  AskedJob asked{with_stderr_in(err, launcher + Arguments{program("LOCKSTEP_TRAIN")}), "", without_end(), "60"};
  asked.job.wait_until([&] { return std::filesystem::exists(folder.path() / "starts"); });
  asked.job.send(SIGUSR2, std::nullopt, "lockstep-run");
  asked.job.wait_until([&] { return !lines_starting_with(read_file(err), "lockstep-run: SIGUSR2: ").empty(); });
  folder.write("asked", "");
  asked.job.wait_until([&] { return tables_in(read_file(err)) == 1; });
  asked.job.wait_until_it_trains();
  asked.job.send(SIGTERM, std::nullopt, "lockstep-run");
  const Outcome outcome = asked.end();
  INFO("stderr: " << outcome.err);
  CHECK(outcome.exit_code == 75);
  CHECK(outcome.err.find("lockstep-run: restart 1 of 100, on 2 ranks: ") != std::string::npos);
  CHECK(tables_in(outcome.err) == 1);
}

TEST_CASE("a job that is to stop is ended if its launcher starts no rank") {
  const TemporaryDirectory folder;
  const std::string err = folder.path() / "stderr";
  const std::string mpirun = folder.write("mpirun", R"(trap '' USR1
touch "${0%/*}/starts"
exec sleep 1000
)");
  const Arguments launcher{
      program("LOCKSTEP_RUN"), "--mpirun", "sh " + mpirun, "--start-timeout", "1", "-n", "2", "--"};
  AskedJob told{with_stderr_in(err, launcher + Arguments{program("LOCKSTEP_TRAIN")}), "", without_end(), "60"};
  told.job.wait_until([&] { return std::filesystem::exists(folder.path() / "starts"); });
  told.job.send(SIGTERM, std::nullopt, "lockstep-run");
  const Outcome outcome = told.end();
  INFO("stderr: " << outcome.err);
  CHECK(outcome.exit_code == 128 + SIGTERM);
  CHECK(lines_starting_with(outcome.err, "lockstep-run: the job has not begun 1 s after it was told to stop").size() ==
        1);
}

TEST_CASE("a rank that is asked says where another hangs, which leaves its stack before the job ends") {
  AskedJob asked{on_this_host(2), "hang:1:9", without_end(), "4"};
  asked.job.wait_until_it_trains();
  asked.wait_for_steps(9);
  asked.job.send(SIGUSR2, 0);
  (void)asked.wait_for_table();
  const std::string process = std::to_string(asked.job.find(1).value_or(0));
  const Outcome outcome = asked.end();
  INFO("stderr: " << outcome.err);
  CHECK(outcome.exit_code == 5);
  const std::string table = asked.table(outcome);
  CHECK_THAT(row(table, 0), Catch::Contains(" s  in step 10, waiting at "));
  CHECK_THAT(row(table, 1), Catch::Contains(" s  in step 10, computing") && Catch::Contains(" " + process + " "));

  const std::filesystem::path file = asked.run() / "stacks" / "rank-1.txt";
  check_blames(outcome.err, 1, "; " + file.string() + " says where its threads were; ");
  CHECK_THAT(read_file(file),
             Catch::Contains("replica 1 (worker:1, host ") && Catch::Contains("\nit was in step 10, ") &&
                 Catch::Contains(" lockstep::InjectedFault::strike(") && Catch::Contains("  (lockstep-train+"));
  CHECK_FALSE(std::filesystem::exists(asked.run() / "stacks" / "rank-0.txt"));
}
