// The files of a run, whose disk fails or is full, which somebody removes meanwhile, or which are somebody else's.
#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <catch2/catch.hpp>
#include <sys/stat.h>

#include <lockstep/core/base/error.hpp>
#include <lockstep/job/sim/sim.hpp>
#include <lockstep/models/record/run_record.hpp>

#include "models/record/ledger.hpp"
#include "models/record/run_folder.hpp"
#include "models/record/run_trace.hpp"
#include "support/file_faults.hpp"
#include "support/job.hpp"
#include "sync/checkpoint/file_system.hpp"

using namespace lockstep;
using Catch::Matchers::Contains;
using lockstep::test::FileFault;
using lockstep::test::read_file;
using lockstep::test::TemporaryDirectory;

namespace {

/// Steps until `last` on one rank, with a checkpoint of each; those after `first` if the run goes on after it.
void record_run(
    const std::filesystem::path& folder, std::optional<std::int64_t> first, std::int64_t last,
    const std::function<void(std::int64_t step)>& before_step = [](std::int64_t) {}) {
  std::optional<FileFault> none;
  if (!FileFault::is_on()) none.emplace(FileFault::Plan{});  // then fsync takes no time
  sim::run({.ranks = 1, .report = [](std::string_view) {}}, [&](Strategy& strategy, int) {
    RunRecord record{strategy, {.folder = folder, .resume_after = first, .ledger = R"({"seed":7})"}};
    for (std::int64_t step = first.value_or(0) + 1; step <= last; ++step) {
      before_step(step);
      record.step(step, {.loss = 1 / static_cast<double>(step), .samples = 10});
      const std::vector<std::uint64_t> of_shards{1, 2, static_cast<std::uint64_t>(step), 4};
      const std::vector<std::string> values{"samples", "loss"};
      record.on_digests({.step = step, .loss = 1, .values = values, .of_shards = of_shards});
      record.checkpoint(step);
    }
    record.finish(R"({"loss":0.5})");
  });
}

/// The texts of the files in a folder, by their names.
std::map<std::string, std::string> texts_in(const std::filesystem::path& folder) {
  std::map<std::string, std::string> texts;
  for (const auto& entry : std::filesystem::recursive_directory_iterator{folder})
    if (entry.is_regular_file() && entry.path().filename() != ".lock")
      texts[entry.path().lexically_relative(folder).string()] = read_file(entry.path());
  return texts;
}

/// What a run says to its files, apart from times: the metrics' steps and the ledger.
std::string record_in(const std::filesystem::path& folder) {
  const RunLayout layout{folder};
  std::string record;
  std::ifstream lines{layout.metrics()};
  for (std::string line; std::getline(lines, line);) record += OrderedJson::parse(line)["step"].dump() + " ";
  return record + read_file(layout.ledger()) + read_file(layout.ledger_of_shards());
}

/// What a call throws, which is to be a CheckpointError; empty if it throws nothing.
std::string failure_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const CheckpointError& error) {
    return error.what();
  }
  return {};
}

/// Calls it with one fault after the other, in the first call of those that the plan means, the second and so on, until
/// there are no more. `check` is told what it threw.
void for_each_fault(FileFault::Plan plan, const std::function<void()>& prepare, const std::function<void()>& call,
                    const std::function<void(const std::string& failure)>& check) {
  for (bool has_happened = true; has_happened;) {
    prepare();
    ++plan.call;
    std::string failure;
    {
      const FileFault fault{plan};
      failure = failure_of(call);
      has_happened = fault.calls() > plan.call;
    }
    INFO(plan.name << " " << plan.call << ": " << failure);
    check(failure);
    if (plan.call > 1000) FAIL("that is no end");
  }
}

}  // namespace

TEST_CASE("a run that goes on and cannot read a file ends with its name, and has changed nothing") {
  const TemporaryDirectory temporary;
  const auto whole = temporary.path() / "whole", folder = temporary.path() / "run";
  record_run(whole, std::nullopt, 6);
  const auto before = texts_in(whole);
  const std::string record = record_in(whole);
  for (const char* name : {"open", "read"})
    for_each_fault(
        {.place = folder.string() + "/", .error = EIO, .name = name},
        [&] {
          std::filesystem::remove_all(folder);
          std::filesystem::copy(whole, folder, std::filesystem::copy_options::recursive);
        },
        [&] { record_run(folder, 4, 6); },
        [&](const std::string& failure) {
          if (failure.empty()) {  // of a file that does without
            CHECK((record_in(folder) == record));
            return;
          }
          CHECK_THAT(failure, Contains(folder.string() + "/") && Contains("Input/output error"));
          if (name != std::string{"read"}) return;
          CHECK((texts_in(folder) == before));
          record_run(folder, 4, 6);
          CHECK((record_in(folder) == record));
        });
}

TEST_CASE("whichever call about a file fails, a run ends with its name or is recorded, and the next goes on") {
  const TemporaryDirectory temporary;
  const auto whole = temporary.path() / "whole", folder = temporary.path() / "run";
  record_run(whole, std::nullopt, 3);
  const std::string record = record_in(whole);
  for (const auto resumed : {std::optional<std::int64_t>{}, std::optional<std::int64_t>{1}})
    for_each_fault(
        {.place = folder.string() + "/", .error = ENOSPC},
        [&] {
          std::filesystem::remove_all(folder);
          if (resumed) std::filesystem::copy(whole, folder, std::filesystem::copy_options::recursive);
        },
        [&] { record_run(folder, resumed, 3); },
        [&](const std::string& failure) {
          if (failure.empty()) {
            CHECK((record_in(folder) == record));
            return;
          }
          CHECK_THAT(failure, Contains(folder.string()) && Contains("No space left on device"));
          if (!resumed) return;
          CHECK_THAT(record_in(folder), Catch::StartsWith("1 "));
          record_run(folder, 0, 3);
        });
  std::filesystem::remove_all(folder);
  const FileFault full{{.place = folder.string(), .call = 0, .error = ENOSPC, .name = "mkdir"}};
  CHECK(failure_of([&] { record_run(folder, std::nullopt, 3); }) ==
        "run folder " + folder.string() + ": cannot be written: No space left on device");
}

TEST_CASE("a run goes on whose files a killed process had moved away to replace them") {
  const TemporaryDirectory temporary;
  const RunLayout whole{temporary.path() / "whole"}, run{temporary.path() / "run"};
  record_run(whole.folder, std::nullopt, 6);
  record_run(run.folder, std::nullopt, 4);
  std::filesystem::create_directory(run.stacks());  // which belongs to the run that run.json is about
  for (const auto& file : {run.description(), run.metrics()}) std::filesystem::rename(file, moved_away(file));
  CHECK_THROWS_WITH(lock_run_folder({.folder = run.folder}, RunStart::anew), Contains("holds a run already"));
  record_run(run.folder, 4, 6);
  CHECK((record_in(run.folder) == record_in(whole.folder)));
  CHECK(OrderedJson::parse(read_file(run.description()))["starts"] == 2);
  for (const auto& [name, text] : texts_in(run.folder)) CHECK_THAT(name, !Contains(".old.part"));
}

TEST_CASE("a call about a file that is interrupted, or does a part of its work, changes nothing") {
  const TemporaryDirectory temporary;
  const auto whole = temporary.path() / "whole", folder = temporary.path() / "run";
  record_run(whole, std::nullopt, 3);
  const std::string record = record_in(whole);
  for (const char* name : {"open", "read", "write"})
    for_each_fault(
        {.place = folder.string() + "/", .name = name},
        [&] {
          std::filesystem::remove_all(folder);
          std::filesystem::copy(whole, folder, std::filesystem::copy_options::recursive);
        },
        [&] { record_run(folder, 1, 3); },
        [&](const std::string& failure) {
          CHECK(failure.empty());
          CHECK((record_in(folder) == record));
        });
}

TEST_CASE("a run replaces no file of somebody else, and says which it is before it writes anything") {
  const TemporaryDirectory temporary;
  const auto folder = temporary.path() / "run";
  std::filesystem::create_directory(folder);
  for (const char* name :
       {"run.json", "metrics.jsonl", "timeline.jsonl", "ledger.jsonl", "ledger.shards.jsonl", "where.txt",
        "stacks/rank-0.txt", "metrics.jsonl.attestation.json", "metrics.jsonl.audit.json"}) {
    std::filesystem::remove_all(folder);
    std::filesystem::create_directories((folder / name).parent_path());
    (void)temporary.write("run/" + std::string{name}, "notes of a user\n");
    const auto before = texts_in(folder);
    std::string refusal;
    try {
      record_run(folder, 0, 1);
    } catch (const ConfigError& error) {
      refusal = error.what();
    }
    const std::string top = std::filesystem::path{name}.begin()->string();
    CHECK_THAT(refusal, Contains((folder / top).string()) && Contains("would be lost; expected "));
    CHECK(texts_in(folder) == before);
  }
}

TEST_CASE("a trace replaces no file of somebody else, and leaves those of other names alone") {
  const TemporaryDirectory temporary;
  const auto trace = temporary.path() / "trace";
  std::filesystem::create_directories(trace / "before");
  (void)temporary.write("trace/notes.json", "{}");
  (void)temporary.write("trace/before/notes.ring", "notes");
  CHECK_NOTHROW(require_own_trace(trace, "run"));
  for (const char* name : {"rank-0.ring", "rank-0.json", "all-ranks.trace", "before/rank-1.ring"}) {
    const auto file = temporary.write("trace/" + std::string{name}, "notes of a user\n");
    CHECK_THROWS_WITH(require_own_trace(trace, "run"),
                      Catch::StartsWith("run " + file.string() + ": holds something else, which would be lost"));
    std::filesystem::remove(file);
  }
  // A rank that was killed at its start.
  (void)temporary.write("trace/rank-0.ring", std::string(4096, '\0'));
  CHECK_NOTHROW(require_own_trace(trace, "run"));
  clear_trace(trace);
  CHECK(read_file(trace / "before/notes.ring") == "notes");
  CHECK(read_file(trace / "notes.json") == "{}");
  CHECK(read_file(trace / "before/rank-0.ring").size() == 4096);
}

TEST_CASE("files that somebody removes or renames during a run are told, and end it as a failure") {
  const TemporaryDirectory temporary;
  const auto folder = temporary.path() / "run";
  const RunLayout layout{folder};
  const auto emptied = [&] {
    for (const auto& entry : std::filesystem::directory_iterator{folder}) std::filesystem::remove_all(entry.path());
  };
  const std::vector<std::function<void()>> changes{
      [&] { std::filesystem::remove_all(folder); },
      [&] { std::filesystem::rename(folder, temporary.path() / "elsewhere"); },
      emptied,
      [&] { std::filesystem::remove(layout.metrics()); },
      [&] { std::filesystem::remove(layout.ledger()); },
      [&] { std::filesystem::rename(layout.timeline(), folder / "timeline.1"); },
  };
  for (std::size_t change = 0; change < changes.size(); ++change) {
    std::filesystem::remove_all(folder);
    std::filesystem::remove_all(temporary.path() / "elsewhere");
    std::int64_t made = 0;
    const std::string failure = failure_of([&] {
      record_run(folder, std::nullopt, 4, [&](std::int64_t step) {
        made = step;
        if (step == 3) changes[change]();
      });
    });
    INFO("change " << change);
    CHECK_THAT(failure, Contains(folder.string() + "/") &&
                            Contains("was removed, renamed or replaced while the run wrote to it"));
    CHECK(made == 4);
    // Nothing says that the run is complete where its files are not.
    if (change < 3) CHECK_FALSE(std::filesystem::exists(layout.description()));
  }
}

TEST_CASE("a file of metrics that is cut during a run, as logs are, goes on whole") {
  const TemporaryDirectory temporary;
  const auto folder = temporary.path() / "run";
  record_run(folder, std::nullopt, 4, [&](std::int64_t step) {
    if (step == 3) std::filesystem::resize_file(RunLayout{folder}.metrics(), 0);
  });
  CHECK_THAT(record_in(folder), Catch::StartsWith("3 4 "));
}

TEST_CASE("a pipe in the place of a file of a run is refused, and not waited for") {
  const TemporaryDirectory temporary;
  const auto folder = temporary.path() / "run";
  for (const char* name : {"run.json", "timeline.jsonl", "ledger.jsonl", "ledger.shards.jsonl"}) {
    std::filesystem::remove_all(folder);
    std::filesystem::create_directory(folder);
    REQUIRE(::mkfifo((folder / name).c_str(), 0666) == 0);
    CHECK_THROWS_WITH(record_run(folder, 0, 1), Contains((folder / name).string() + ": is a pipe, not a regular file"));
  }
}
