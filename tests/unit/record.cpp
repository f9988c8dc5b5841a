// The folder of a run: who may write it, what it says, and how it goes on after a kill.
#include <chrono>
#include <filesystem>
#include <string>
#include <vector>

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include <lockstep/core/base/error.hpp>
#include <lockstep/job/sim/sim.hpp>
#include <lockstep/models/record/run_record.hpp>

#include "core/base/open_line.hpp"
#include "core/control/clock_offset.hpp"
#include "core/control/meeting_point.hpp"
#include "core/watch/watch_notes.hpp"
#include "models/record/failure_note.hpp"
#include "models/record/run_folder.hpp"
#include "models/record/timeline.hpp"
#include "support/child_process.hpp"
#include "support/job.hpp"
#include "sync/group/replica_group.hpp"
#include "sync/strategy/inside.hpp"

using namespace lockstep;
using lockstep::test::ChildProcess;
using lockstep::test::read_file;
using lockstep::test::TemporaryDirectory;

namespace {

/// "start 1", "end 1", ….
std::vector<std::string> kinds_in(const std::filesystem::path& timeline) {
  std::vector<std::string> kinds;
  for (const OrderedJson& line : read_timeline(timeline))
    kinds.push_back(line["kind"].get<std::string>() + " " + line["start"].dump());
  return kinds;
}

/// Steps `first` to `last` on two ranks.
void record_steps(const RunRecord::Options& options, std::int64_t first, std::int64_t last) {
  sim::run({.ranks = 2, .report = [](std::string_view) {}}, [&](Strategy& strategy, int) {
    RunRecord record{strategy, options};
    for (std::int64_t step = first; step <= last; ++step)
      record.step(step, {.loss = 1 / static_cast<double>(step), .samples = 10});
    record.checkpoint(last, 0.25, options.folder / "checkpoints" / "step");
    record.evaluation(last, {.loss = 0.5, .accuracy = 0.9, .seconds = 2});
    record.finish(R"({"loss":0.5})");
  });
}

std::vector<std::int64_t> steps_in(const std::filesystem::path& metrics, const char* key = "step") {
  std::vector<std::int64_t> steps;
  for (const OrderedJson& line : read_timeline(metrics))
    if (line["kind"] == "train") steps.push_back(line[key]);
  return steps;
}

}  // namespace

TEST_CASE("a timeline counts starts, and removes what is left of a line that was cut off") {
  const TemporaryDirectory folder;
  const auto path = folder.write("timeline.jsonl", R"({"kind":"start","time":1,"start":3})"
                                                   "\n"
                                                   R"({"kind":"chec)");
  Timeline timeline{path, "--run-dir x"};
  CHECK(timeline.start() == 3);
  timeline.add("end", {{"step", 7}});
  CHECK(kinds_in(path) == std::vector<std::string>{"start 3", "end 3"});
  CHECK(read_file(path).find("chec") == std::string::npos);
  CHECK_THROWS_WITH(Timeline("/dev/full", "--run-dir x"), "--run-dir x: is a device, not a regular file");
}

TEST_CASE("the line that says how a job ends goes to the timeline of its run, if that is the file") {
  const TemporaryDirectory folder;
  const auto path = folder.write("timeline.jsonl", R"({"kind":"checkpo)");  // the chief was killed there
  const ino_t inode = Timeline{folder.write("other", ""), "other"}.inode();
  note_failures({path, inode, 1});
  print_last_line("lockstep: another run failed", 4);
  CHECK(kinds_in(path).empty());
  Timeline timeline{path, "--run-dir x"};
  folder.write("timeline.jsonl", R"({"kind":"checkpo)");
  note_failures({path, timeline.inode(), 2});
  print_last_line("lockstep: stopped after step 5", 75);
  print_last_line("lockstep: replica 1 failed", 4);
  forget_failures();
  print_last_line("lockstep: later", 4);
  CHECK(kinds_in(path) == std::vector<std::string>{"failure 2"});
  CHECK(read_timeline(path)[0]["line"] == "lockstep: replica 1 failed");
  CHECK(read_timeline(path)[0]["exit_code"] == 4);
}

TEST_CASE("a record says what ran, goes on without a missing or a double step, and is refused otherwise") {
  const TemporaryDirectory temporary;
  const std::filesystem::path folder = temporary.path() / "runs" / "one";
  const RunLayout layout{folder};
  record_steps({.folder = folder}, 1, 5);
  const OrderedJson first = OrderedJson::parse(read_file(layout.description()));
  CHECK(first["ranks"].size() == 2);
  CHECK(first["ranks"][1]["task"] == "worker:1");
  CHECK(first["ranks"][1]["device"] == "cpu");
  CHECK(first["ranks"][0]["process"] == ::getpid());
  CHECK(first["command"].size() > 0);
  CHECK(first["paths"]["metrics"] == "metrics.jsonl");
  CHECK(first["result"]["loss"] == 0.5);
  CHECK(first["ended"].is_string());
  CHECK(first["mpi"].is_null());

  CHECK_THROWS_WITH(
      record_steps({.folder = folder, .folder_name = "--out", .resume_name = "--again"}, 1, 1),
      "--out " + folder.string() + ": holds a run already; expected --again, which goes on with it, or another folder");
  // Killed in the middle of a line of step 6, after a checkpoint of step 3.
  temporary.write("runs/one/metrics.jsonl", read_file(layout.metrics()) + R"({"kind":"train","st)");
  record_steps({.folder = folder,
                .resume_after = 3,
                .about = R"({"options":{"width":64},"paths":{"log":")" + (folder / "log").string() + R"("}})"},
               4, 7);
  CHECK(steps_in(layout.metrics()) == std::vector<std::int64_t>{1, 2, 3, 4, 5, 6, 7});
  CHECK(steps_in(layout.metrics(), "samples") == std::vector<std::int64_t>{10, 20, 30, 40, 50, 60, 70});
  CHECK(kinds_in(layout.timeline()) == std::vector<std::string>{"start 1", "checkpoint 1", "evaluation 1", "end 1",
                                                                "start 2", "checkpoint 2", "evaluation 2", "end 2"});
  CHECK(read_timeline(layout.timeline())[1]["path"] == "checkpoints/step");
  const OrderedJson second = OrderedJson::parse(read_file(layout.description()));
  CHECK(second["starts"] == 2);
  CHECK(second["started"] == first["started"]);
  CHECK(second["options"]["width"] == 64);
  CHECK(second["paths"]["log"] == "log");
  CHECK(second["paths"]["timeline"] == "timeline.jsonl");
}

TEST_CASE("metrics may be elsewhere, and without a folder there is nothing else") {
  const TemporaryDirectory temporary;
  const std::filesystem::path metrics = temporary.path() / "m.jsonl", folder = temporary.path() / "run";
  record_steps({.metrics = metrics}, 1, 2);
  CHECK(steps_in(metrics).size() == 2);
  record_steps({.folder = folder, .metrics = metrics}, 1, 3);
  CHECK(steps_in(metrics).size() == 3);
  CHECK_FALSE(std::filesystem::exists(RunLayout{folder}.metrics()));
  CHECK(OrderedJson::parse(read_file(RunLayout{folder}.description()))["paths"]["metrics"] == metrics.string());
  record_steps({}, 1, 2);
  CHECK_THROWS_AS(record_steps({.folder = folder, .resume_after = 0, .about = "[]"}, 1, 1), InvalidArgument);
}

TEST_CASE("a folder that cannot be written, or that another process uses, is refused with its name") {
  const TemporaryDirectory temporary;
  const std::filesystem::path file = temporary.write("file", "");
  const auto refusal = [](const std::filesystem::path& folder) {
    try {
      record_steps({.folder = folder}, 1, 1);
    } catch (const ConfigError& error) {
      return std::string{error.what()};
    }
    return std::string{};
  };
  CHECK(refusal(file) == "run folder " + file.string() + ": is a regular file; expected a folder that can be written");
  const std::filesystem::path used = temporary.path() / "used";
  const ChildProcess other{[&] {
    const auto use = lock_run_folder({.folder = used}, RunStart::anew);
    return ::pause();
  }};
  REQUIRE(lockstep::test::eventually([&] { return std::filesystem::exists(used / ".lock"); }));
  REQUIRE(lockstep::test::eventually([&] { return !read_file(used / ".lock").empty(); }));
  CHECK_THAT(refusal(used), Catch::StartsWith("run folder " + used.string() + " is in use by process "));
}

TEST_CASE("an observer behind a record is told what the record is told, and an early end is said once") {
  struct Counter final : Observer {
    int steps = 0, ends = 0;
    void on_step(const Step&) override { ++steps; }
    void on_step_end(const State&) override { ++ends; }
  } counter;
  sim::run({.ranks = 1}, [&](Strategy& strategy, int) {
    RunRecord record{strategy, {.next = &counter}};
    record.on_step({.step = 1});
    record.on_step_end({});
  });
  const TemporaryDirectory folder;
  sim::run({.ranks = 1}, [&](Strategy& strategy, int) {
    RunRecord record{strategy, {.folder = folder.path()}};
    record.on_stop({.steps = 3, .recent = {}});
    record.stop(3);
  });
  CHECK(kinds_in(RunLayout{folder.path()}.timeline()) == std::vector<std::string>{"start 1", "stop 1"});
  CHECK(counter.steps == 1);
  CHECK(counter.ends == 1);
}

TEST_CASE("while a record lives, the watchdog's notes go to the folder of the run") {
  const TemporaryDirectory temporary;
  const RunLayout layout{temporary.path() / "run"};
  sim::run({.ranks = 1}, [&](Strategy& strategy, int) {
    RunRecord record{strategy, {.folder = layout.folder}};
    const auto notes = watch_notes();
    REQUIRE(notes);
    CHECK(notes->table == layout.where());
    notes->write(notes->table, "first\n");
    notes->write(notes->table, "second\n");
    notes->write(stack_file(notes->stacks, 3), "a stack\n");
    CHECK(read_file(layout.where()) == "second\n");
    CHECK(read_file(layout.folder / "stacks/rank-3.txt") == "a stack\n");
    CHECK_THROWS_AS(notes->write(layout.where() / "no folder", "third\n"), CheckpointError);
    record.finish();
    CHECK_FALSE(watch_notes());
    // A thread may still be about to write.
    std::filesystem::remove_all(layout.folder);
    for (const auto& file : {notes->table, stack_file(notes->stacks, 3)})
      CHECK_THROWS_AS(notes->write(file, "late\n"), CheckpointError);
    CHECK_FALSE(std::filesystem::exists(layout.folder));
  });
}

TEST_CASE("a trace whose pictures cannot be made fails no run, and the next start keeps its ring") {
  const TemporaryDirectory temporary;
  const RunLayout layout{temporary.path() / "run"};
  const auto run = [&](bool without_folder) {
    sim::run({.ranks = 1}, [&](Strategy& strategy, int) {
      RunRecord record{strategy, {.folder = layout.folder, .resume_after = 0, .trace = true}};
      (void)strategy.same_on_all(1);
      if (without_folder) std::filesystem::rename(layout.trace(), temporary.path() / "elsewhere");
      record.finish();
      if (without_folder) std::filesystem::rename(temporary.path() / "elsewhere", layout.trace());
    });
  };
  run(true);
  CHECK(kinds_in(layout.timeline()) == std::vector<std::string>{"start 1", "end 1"});
  CHECK_FALSE(std::filesystem::exists(layout.trace() / "rank-0.json"));
  run(false);
  CHECK(std::filesystem::exists(layout.trace() / "before" / "rank-0.ring"));
  CHECK(std::filesystem::exists(layout.trace() / "rank-0.json"));
  CHECK(std::filesystem::exists(layout.trace() / "all-ranks.trace"));
}

TEST_CASE("ranks that read one clock find no offset beyond the error") {
  sim::run({.ranks = 3}, [](Strategy& strategy, int rank) {
    (void)strategy.same_on_all(1);
    const ClockOffset found = find_clock_offset(inside(strategy).group().meeting().channel());
    CHECK(std::chrono::abs(found.offset) <= found.error);
    CHECK((found.error.count() == 0) == (rank == 0));
  });
}
