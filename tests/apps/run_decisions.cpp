// What lockstep-run decides, without processes: from exit codes and lines of a job to what comes next.
#include <chrono>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>
#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>

#include "apps/lockstep-run/hosts.hpp"
#include "apps/lockstep-run/job_report.hpp"
#include "apps/lockstep-run/supervised_command.hpp"
#include "apps/lockstep-run/supervision.hpp"

namespace lockstep::test::run_decisions_cases {

using namespace lockstep::run;
using namespace std::string_view_literals;

namespace {

using Words = std::vector<std::string>;
using Cause = JobReport::Cause;

JobReport report_of(std::string_view text) {
  JobReader reader;
  reader.take(text);
  return reader.report();
}

JobReport with(Cause cause, std::string host = {}) {
  return {.cause = cause, .host = std::move(host)};
}

/// A job that a killed rank ended.
JobEnd killed(bool made_progress, JobReport report = {}) {
  return {.exit_code = 137, .report = std::move(report), .made_progress = made_progress};
}

const std::vector<Host> three{{"a", 2}, {"b", 2}, {"c", 4}};

}  // namespace

TEST_CASE("what a restart can do about the end of a job follows from its exit code, and from a line where that is 1") {
  struct Row {
    int exit_code;
    JobReport report;
    Remedy remedy;
  };
  const std::vector<Row> rows{
      {0, {}, Remedy::none},
      {1, {}, Remedy::none},
      {1, with(Cause::gone), Remedy::restart},
      {1, with(Cause::stopped), Remedy::restart},
      {1, with(Cause::late), Remedy::restart},
      {1, with(Cause::asked), Remedy::stop},
      {1, with(Cause::interrupted), Remedy::none},
      {1, {.unreachable = {"b"}}, Remedy::restart},
      {1, {.lost = {"b"}}, Remedy::restart},
      {1, with(Cause::failed), Remedy::none},
      // mpirun that loses a daemon ends the ranks of the other hosts.
      {1, {.cause = Cause::interrupted, .lost = {"b"}}, Remedy::restart},
      {205, with(Cause::interrupted), Remedy::restart},
      {2, {}, Remedy::none},
      {3, {}, Remedy::none},
      {4, {}, Remedy::restart},
      {4, with(Cause::failed), Remedy::restart},
      {5, with(Cause::stopped), Remedy::restart},
      {6, {}, Remedy::none},
      {7, {}, Remedy::none},
      {8, {}, Remedy::none},
      {9, {}, Remedy::none},
      {75, with(Cause::asked), Remedy::stop},
      {75, {}, Remedy::stop},
      {127, {}, Remedy::none},
      {134, {}, Remedy::restart},
      {134, with(Cause::not_launched), Remedy::none},
      {137, with(Cause::gone), Remedy::restart},
      {138, {}, Remedy::stop},
      {139, {}, Remedy::restart},
      {143, {}, Remedy::restart},
      {143, with(Cause::interrupted), Remedy::none},
      {205, {}, Remedy::restart},
      {255, {}, Remedy::restart},
  };
  for (const Row& row : rows) {
    CAPTURE(row.exit_code, static_cast<int>(row.report.cause));
    CHECK(judge(row.exit_code, row.report).remedy == row.remedy);
  }
}

TEST_CASE("a job that Open MPI 5 ends with 0 since it has lost a host is not done") {
  JobReport lost;
  lost.lost = {"b"};
  CHECK(code_of_job(MpiKind::open_mpi_5, 0, lost) == 205);
  CHECK(code_of_job(MpiKind::open_mpi_5, 0, {.unreachable = {"b"}}) == 205);
  for (const Cause failure : {Cause::gone, Cause::stopped, Cause::late, Cause::failed}) {
    CHECK(code_of_job(MpiKind::open_mpi_5, 0, with(failure)) == 205);
    CHECK(judge(205, with(failure)).remedy == Remedy::restart);
  }
  CHECK(code_of_job(MpiKind::open_mpi_5, 0, with(Cause::asked)) == 0);
  CHECK(code_of_job(MpiKind::open_mpi_5, 0, {}) == 0);
  CHECK(judge(205, lost).remedy == Remedy::restart);
}

TEST_CASE("MPICH's mpiexec ends with the number of a signal, unless the job has said how it ended") {
  const auto code = [](int exit_code, JobReport report) { return code_of_job(MpiKind::mpich, exit_code, report); };
  const JobReport silent, gone{.cause = Cause::gone, .has_spoken = true},
      failed{.cause = Cause::failed, .has_spoken = true};
  for (const int signal : {6, 9, 11, 15}) {
    CHECK(code(signal, silent) == 128 + signal);
    CHECK(code(signal, gone) == 128 + signal);
    CHECK(code(signal, failed) == signal);
    for (const MpiKind other : {MpiKind::open_mpi_5, MpiKind::intel_mpi})
      CHECK(code_of_job(other, signal, silent) == signal);
  }
  // The survivors ended the job.
  for (const int by_others : {4, 5}) CHECK(code(by_others, gone) == by_others);
  for (const int by_itself : {0, 1, 2, 3, 75, 255}) CHECK(code(by_itself, silent) == by_itself);
}

TEST_CASE("a job's own words are found among all that it writes, however cut") {
  const auto check = [](std::string_view text, Cause cause, std::string_view host) {
    CAPTURE(text);
    const std::string whole = "step 3/9  loss 1.5\rstep 4/9\n" + std::string{text} + "\nmpirun has exited\n";
    JobReader reader;
    for (const char& each : whole) reader.take({&each, 1});
    CHECK(reader.report().cause == cause);
    CHECK(reader.report().host == host);
    CHECK(report_of(whole).cause == cause);
  };
  check("lockstep: replica 1 (worker:1, host b) is gone: its process ended; it was in step 5", Cause::gone, "b");
  check("lockstep: replica 12 is gone: its process ended while the job was starting", Cause::gone, "");
  for (const std::string label : {"[0] ", "1: ", "[1,3]<stderr>:"})
    check(label + "lockstep: replica 1 (worker:1, host b) is gone: its process ended", Cause::gone, "b");
  check("[rank 0] lockstep: replica 1 (worker:1, host b) is gone: its process ended", Cause::unknown, "");
  check("lockstep: replica 1 (worker:1, host b) has stopped: no sign of life for 3 s", Cause::stopped, "b");
  check("lockstep: replica 1 (worker:1, host b) is late: the end of the step was waited for", Cause::late, "b");
  check("lockstep: replica 1 (worker:1, host b) is stuck: a call to its GPU's driver has not returned", Cause::late,
        "b");
  check("lockstep: replica 1 (worker:1, host b) does not come: the end of the step was waited for", Cause::late, "b");
  check("lockstep: error: sum #1 has not ended for 3 s on replicas 0, 1, and no rank is late for it", Cause::late, "");
  check("lockstep: replica 3 waited 80 s for ranks of other nodes while the job was starting", Cause::late, "");
  check("lockstep: interrupted in step 345, computing (training.cpp:1)", Cause::interrupted, "");
  check("lockstep: stopped after step 5, as a signal asked; nothing was saved", Cause::asked, "");
  check("lockstep: replica 1 (worker:1, host b) failed: LOCKSTEP_FAULT: thrown in step 5", Cause::failed, "b");
  check("lockstep: replica 1 (worker:1, host b) called exit(3) before the end of the job", Cause::failed, "b");
  check("[rank 0] info: lockstep: replica 1 (worker:1, host b) is gone: no", Cause::unknown, "");
  check("mpirun was unable to find the specified executable file, and therefore", Cause::not_launched, "");
  check("prterun was unable to launch the specified application as it could not", Cause::not_launched, "");
  check("[proxy:0@a] HYDU_create_process (launch.c:73): execvp error on file x (No such", Cause::not_launched, "");
  // prterun ends what it says with a zero.
  check("--\n\0lockstep: replica 1 (worker:1, host b) is gone: its process"sv, Cause::gone, "b");
  // The first line is the cause.
  check(
      "lockstep: replica 1 (worker:1, host b) has stopped: no\nlockstep: replica 0 (worker:0, host a) is gone: its "
      "process",
      Cause::stopped, "b");

  const auto unreachable = [](std::string_view text) { return report_of(text).unreachable; };
  CHECK(unreachable("lockstep: replica 2 (worker:2, host b) cannot be reached: no sign of life\n") == Words{"b"});
  CHECK(report_of("  HNP daemon   : [[1,0],0] on node a\n  Remote daemon: [[1,0],1] on node b\n").lost == Words{"b"});
  CHECK(unreachable("ssh: connect to host b port 22: No route to host\nssh: Could not resolve hostname c: none\n") ==
        Words{"b", "c"});
}

TEST_CASE("a job is started again at once, then later and later until there is a new checkpoint, and not for ever") {
  Supervision supervision{{.ranks = 4, .max_restarts = 14}};
  CHECK(supervision.first().ranks == 4);
  const auto delay = [&](bool made_progress) {
    const Decision decision = supervision.after(killed(made_progress));
    REQUIRE(decision.start);
    CHECK(decision.start->ranks == 4);
    CHECK(decision.lines.size() == 1);
    return decision.start->delay.count();
  };
  for (const long expected : {0, 1, 2, 4}) CHECK(delay(false) == expected);
  for (const long expected : {0, 0}) CHECK(delay(true) == expected);
  for (const long expected : {1, 2, 4, 8, 16, 30, 30, 30}) CHECK(delay(false) == expected);
  const Decision last = supervision.after(killed(true));
  CHECK_FALSE(last.start);
  CHECK(last.exit_code == 137);
  CHECK(last.lines == Words{"gives up after 14 restarts: SIGKILL ended a rank (exit code 137)"});

  Supervision stuck{{.ranks = 4}};
  for (int restart = 0; restart < most_in_a_row; ++restart) REQUIRE(stuck.after(killed(false)).start);
  CHECK(stuck.after(killed(false)).lines ==
        Words{"gives up after 10 restarts without a new checkpoint: SIGKILL ended a rank (exit code 137)"});

  Supervision never{{.ranks = 4, .max_restarts = 0}};
  CHECK_FALSE(never.after(killed(true)).start);
}

TEST_CASE("a job that is done, stopped or cannot go better is over, with its own exit code") {
  Supervision supervision{{.ranks = 4}};
  const auto over = [&](const JobEnd& end, int exit_code, std::size_t lines) {
    CAPTURE(end.exit_code);
    const Decision decision = supervision.after(end);
    CHECK_FALSE(decision.start);
    CHECK(decision.exit_code == exit_code);
    CHECK(decision.lines.size() == lines);
  };
  over({.exit_code = 0}, 0, 0);
  over({.exit_code = 2}, 2, 1);
  over({.exit_code = 7}, 7, 1);
  over({.exit_code = 75}, 75, 1);
  over({.exit_code = 138}, 75, 1);
  // A job that dies when it is to stop is not started again, though it might be.
  over({.exit_code = 137, .was_told_to_stop = true}, 75, 1);
  over({.exit_code = 2, .was_told_to_stop = true}, 2, 1);
}

TEST_CASE("a host that failed is left out, and the job goes on with the fewest of the fastest ranks") {
  const SupervisedCommand command{{"bin/lockstep-train", "--data", "x", "--checkpoint-dir", "run1"}};
  const auto supervision = [&](int ranks, int min_ranks) {
    return Supervision{{.ranks = ranks,
                        .min_ranks = min_ranks,
                        .hosts = three,
                        .this_host = "a.cluster",
                        .relative_time = [&](int count) { return command.relative_time(count, 8, {}); }}};
  };
  Supervision eight = supervision(8, 2);
  CHECK(eight.first().hosts == three);
  Decision next = eight.after(killed(true, report_of("lockstep: replica 2 (worker:2, host b.cluster) cannot be "
                                                     "reached: no sign of life\n")));
  REQUIRE(next.start);
  CHECK(next.start->ranks == 4);  // of 8 shards; 6 slots are left, and 5 or 6 ranks are no faster
  CHECK(next.start->hosts == std::vector<Host>{{"a", 2}, {"c", 4}});
  CHECK(next.lines.front() == "leaves out host b: it cannot be reached");
  next = eight.after(killed(true, with(Cause::stopped, "c")));
  REQUIRE(next.start);
  CHECK(next.start->ranks == 2);
  // Without the last one there is no job.
  next = eight.after(killed(true, with(Cause::stopped, "a")));
  REQUIRE(next.start);
  CHECK(next.start->hosts == std::vector<Host>{{"a", 2}});
  CHECK_THAT(next.lines.front(), Catch::StartsWith("keeps host a"));

  // A process that ends is no host that failed, unless it happens there again before there is a checkpoint.
  Supervision again = supervision(8, 1);
  const auto hosts_after = [&](bool made_progress, const char* host) {
    return again.after(killed(made_progress, with(Cause::gone, host))).start->hosts.size();
  };
  CHECK(hosts_after(true, "b") == 3);
  CHECK(hosts_after(true, "b") == 3);
  CHECK(hosts_after(false, "c") == 3);
  CHECK(hosts_after(false, "b") == 3);
  CHECK(hosts_after(false, "b") == 2);

  next = again.after(killed(true, with(Cause::stopped, "d")));
  CHECK(next.lines.front() == "cannot leave out host d, which is not in the list of hosts: a rank there stopped");
  CHECK(next.start->hosts.size() == 2);

  Supervision seven = supervision(8, 7);
  CHECK(seven.after(killed(true, with(Cause::stopped, "b"))).start->hosts == three);  // 6 slots would be too few
  Supervision five = supervision(8, 5);
  CHECK(five.after(killed(true, with(Cause::stopped, "b"))).start->ranks == 5);  // no slower than 6

  CHECK_THROWS_WITH(supervision(9, 1), "-n 9: the hosts have 8 slots; expected at least as many");
  CHECK_THROWS_WITH(supervision(4, 5), "--min-ranks 5: expected at most the 4 of -n");
}

TEST_CASE(
    "a program that fails in the same way in the same step is not started a third time, and one that is killed is") {
  const auto failed = [](int exit_code, const std::string& what) {
    return JobEnd{.exit_code = exit_code,
                  .report = report_of("lockstep: replica 1 (worker:1, host b) " + what + "\n"),
                  .made_progress = true};
  };
  const auto starts_after = [](const std::vector<JobEnd>& ends) {
    Supervision supervision{{.ranks = 4}};
    int starts = 0;
    for (const JobEnd& end : ends) starts += supervision.after(end).start ? 1 : 0;
    return starts;
  };
  const JobEnd one = failed(4, "failed: no such sample; it was in step 26, computing (a.cpp:1)");
  CHECK(starts_after({one, one}) == 1);
  CHECK(starts_after({one, failed(4, "failed: no such sample; it was in step 26, at merge_call #1")}) == 1);
  CHECK(starts_after({one, failed(4, "failed: no such sample; it was in step 27, computing (a.cpp:1)")}) == 2);
  CHECK(starts_after({one, failed(4, "failed: another sample; it was in step 26, computing (a.cpp:1)")}) == 2);
  CHECK(starts_after({one, killed(true), one}) == 3);
  // Where it was is not known.
  const JobEnd nowhere = failed(4, "failed: MPI_Allreduce: no memory");
  CHECK(starts_after({nowhere, nowhere}) == 2);
  const std::string gone = "is gone: its process ended; it was in step 5, computing (a.cpp:1)";
  CHECK(starts_after({failed(1, gone), failed(1, gone)}) == 1);
  for (const int code : {4, 137}) CHECK(starts_after({failed(code, gone), failed(code, gone)}) == 2);

  Supervision supervision{{.ranks = 4}};
  (void)supervision.after(one);
  const Decision last = supervision.after(one);
  CHECK(last.exit_code == 4);
  CHECK(last.lines ==
        Words{"ends with exit code 4, as a restart did not help: the job failed in the same way, in the same step"});
}

TEST_CASE("a host that computes wrong ends the job, or is left out the second time") {
  const auto wrong = [](const char* host) {
    const std::string line = fmt::format(
        "lockstep: replica 1 (worker:1, host {}) computed shard 5 of step 120 wrong: gradient of 'w' differs from "
        "replicas 0 and 2\n",
        host);
    return JobEnd{.exit_code = 9, .report = report_of(line), .made_progress = true};
  };
  CHECK(wrong("b").report.cause == Cause::miscomputed);
  CHECK(report_of("lockstep: replica 1 (worker:1, host b) read other samples than replica 0 for shard 5 of step 3\n")
            .cause == Cause::miscomputed);
  Supervision stops{{.ranks = 6, .hosts = three}};
  const Decision over = stops.after(wrong("b"));
  CHECK_FALSE(over.start);
  CHECK(over.exit_code == 9);
  CHECK(over.lines == Words{"ends with exit code 9, as a restart would not help: a rank computed or read wrong"});

  Supervision skips{{.ranks = 6, .skips_wrong_hosts = true, .hosts = three}};
  CHECK(skips.after(wrong("b")).start.value().hosts == three);
  CHECK(skips.after(wrong("c")).start.value().hosts == three);
  CHECK(skips.after(killed(true)).start.value().hosts == three);
  const Decision without = skips.after(wrong("b"));
  CHECK(without.start.value().hosts == std::vector<Host>{{"a", 2}, {"c", 4}});
  CHECK(without.lines.front() == "leaves out host b: a rank there computed or read wrong twice");

  // Without hosts to leave out, or with too few of them.
  for (const std::vector<Host>& hosts : {std::vector<Host>{}, std::vector<Host>{{"b", 2}}}) {
    Supervision stuck{{.ranks = 2, .min_ranks = 2, .skips_wrong_hosts = true, .hosts = hosts}};
    CHECK(stuck.after(wrong("b")).start);
    const Decision gives_up = stuck.after(wrong("b"));
    CHECK_FALSE(gives_up.start);
    CHECK(gives_up.exit_code == 9);
    CHECK(gives_up.lines.back() ==
          "ends with exit code 9: host b computed or read wrong twice, and cannot be left out");
  }
  // MPICH's code for a job that was killed.
  for (const Cause cause : {Cause::stopped, Cause::late}) CHECK(judge(9, with(cause)).remedy == Remedy::restart);

  Supervision nobody{{.ranks = 2, .skips_wrong_hosts = true, .hosts = three}};
  CHECK_FALSE(nobody.after({.exit_code = 9, .report = with(Cause::unknown)}).start);
}

TEST_CASE("a host that cannot be reached at the first start ends it, unless fewer ranks will do") {
  const auto supervision = [](bool may_start_without) {
    return Supervision{{.ranks = 8, .may_start_without = may_start_without, .hosts = three, .this_host = "a"}};
  };
  const auto end = [](bool has_begun, Words silent, Words unreachable) {
    JobEnd end{.exit_code = 255, .report = {.unreachable = std::move(unreachable)}, .has_begun = has_begun};
    end.silent = std::move(silent);
    return end;
  };
  const std::string expected = "; expected every host to answer at the first start (--min-ranks goes on without)";
  Decision decision = supervision(false).after(end(false, {}, {"b"}));
  CHECK_FALSE(decision.start);
  CHECK(decision.exit_code == 2);
  CHECK(decision.lines == Words{"error: host b cannot be reached" + expected});
  CHECK(supervision(false).after(end(false, {"b"}, {"b"})).lines == Words{"error: host b does not answer" + expected});
  CHECK(supervision(false).after(end(false, {"b"}, {"b", "c"})).lines ==
        Words{"error: hosts b, c cannot be reached" + expected});
  decision = supervision(true).after(end(false, {"b"}, {"b"}));
  REQUIRE(decision.start);
  CHECK(decision.start->ranks == 6);
  CHECK(decision.lines.front() == "leaves out host b: it does not answer");
  // Names that were right once.
  CHECK(supervision(false).after(end(true, {}, {"b"})).start);
  Supervision later = supervision(false);
  (void)later.after(killed(false));
  CHECK(later.after(end(false, {}, {"b"})).start);
  JobEnd told = end(false, {}, {"b"});
  told.was_told_to_stop = true;
  CHECK(supervision(false).after(told).exit_code == 75);
}

TEST_CASE("hosts are asked where a job did not begin, or where mpirun lost a daemon, and one that answers stays") {
  Supervision supervision{{.ranks = 8, .hosts = three, .this_host = "a"}};
  JobEnd end{.exit_code = 255, .has_begun = false};
  CHECK(supervision.in_doubt(end) == Words{"b", "c"});
  end.exit_code = 1;
  CHECK(supervision.in_doubt(end) == Words{"b", "c"});
  end.exit_code = 2;
  CHECK(supervision.in_doubt(end).empty());
  end.exit_code = 1;
  end.report.unreachable = {"c"};  // known
  CHECK(supervision.in_doubt(end).empty());
  end = {.exit_code = 205, .report = {.cause = Cause::interrupted, .lost = {"c.cluster"}}};
  CHECK(supervision.in_doubt(end) == Words{"c"});
  CHECK(supervision.in_doubt(killed(true, with(Cause::gone, "b"))).empty());
  CHECK(supervision.in_doubt({.exit_code = 255}).empty());
  end.was_told_to_stop = true;
  CHECK(supervision.in_doubt(end).empty());

  end.was_told_to_stop = false;
  Decision decision = supervision.after(end);
  REQUIRE(decision.start);
  CHECK(decision.start->hosts == three);
  CHECK_THAT(decision.lines.front(), Catch::EndsWith("mpirun lost its daemon on a host (exit code 205)"));
  decision = supervision.after(end);  // once more
  CHECK(decision.start->hosts.size() == 2);
}

TEST_CASE("a restart says why: no start, no memory, or no mpirun") {
  const auto line = [](const JobEnd& end) {
    return Supervision{{.ranks = 4, .hosts = three, .this_host = "a"}}.after(end).lines.back();
  };
  JobEnd end = killed(false, with(Cause::unknown));
  end.mpirun_was_killed = true;
  CHECK_THAT(line(end), Catch::EndsWith(": SIGKILL ended mpirun (exit code 137)"));
  end = {.exit_code = 5, .report = with(Cause::interrupted), .has_begun = false};
  end.waited_for_start = std::chrono::seconds{60};
  CHECK_THAT(line(end), Catch::EndsWith(": it had not begun after 60 s (exit code 5)"));

  const std::string memory = "the kernel killed it for memory (memory.max of /x is 512 MiB)";
  const auto with_memory = [&](JobReport report) {
    JobEnd end = killed(false, std::move(report));
    end.memory = memory;
    return line(end);
  };
  CHECK_THAT(with_memory({}), Catch::EndsWith(": SIGKILL ended a rank: " + memory + " (exit code 137)"));
  CHECK_THAT(with_memory(with(Cause::gone, "a")), Catch::Contains(memory));
  // Another host's memory, and what the job has said itself.
  CHECK_THAT(with_memory(with(Cause::gone, "b")), !Catch::Contains(memory));
  JobReport told = with(Cause::gone, "a");
  told.failure = "is gone: " + memory;
  CHECK_THAT(with_memory(told), !Catch::Contains(memory));
}

}  // namespace lockstep::test::run_decisions_cases
