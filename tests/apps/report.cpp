// What lockstep-report reads of runs, whatever state their files are in, and the page that it makes of them.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include <catch2/catch.hpp>
#include <fmt/format.h>

#include <lockstep/base/error.hpp>

#include "apps/lockstep-report/curves.hpp"
#include "apps/lockstep-report/findings.hpp"
#include "apps/lockstep-report/json_members.hpp"
#include "apps/lockstep-report/metrics.hpp"
#include "apps/lockstep-report/page.hpp"
#include "apps/lockstep-report/run.hpp"
#include "support/job.hpp"

using namespace lockstep;
using namespace lockstep::report;
using namespace lockstep::test;
using Catch::Contains;

namespace {

constexpr double nan_value = std::numeric_limits<double>::quiet_NaN();

void write(const std::filesystem::path& path, std::string_view text) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream{path, std::ios::binary} << text;
}

std::string train_line(std::int64_t step, double seconds, std::string_view loss = "0.5", int batch = 64) {
  return fmt::format(
      R"({{"kind":"train","step":{},"epoch":1,"samples":{},"batch":{},"loss":{},"learning_rate":0.1,"gradient_norm":2,"seconds":{},"samples_per_second":1}})"
      "\n",
      step, 64 * step, batch, loss, seconds);
}

std::string eval_line(std::int64_t step, double loss) {
  return fmt::format(R"({{"kind":"eval","step":{},"epoch":1,"loss":{},"accuracy":0.75,"seconds":0.5}})"
                     "\n",
                     step, loss);
}

struct RankParts {
  std::string name, host;
  double data = 0.1, late = 0, checkpoint = 0, evaluation = 0.1, waiting = 0.3, queued = 0;
};

std::string parts_line(std::int64_t step, const std::vector<RankParts>& ranks) {
  std::string line = fmt::format(R"({{"kind":"parts","step":{},"steps":10,"seconds":2,"ranks":[)", step);
  for (std::size_t i = 0; i < ranks.size(); ++i)
    line += fmt::format(
        R"({}{{"replica":{},"name":"{}","host":"{}","data":{},"forward":0.2,"backward":0.4,"optimizer":0.1,"checkpoint":{},"evaluation":{},"other":0,"waiting":{},"queued":{},"late":{},"mostly":"data"}})",
        i > 0 ? "," : "", i, ranks[i].name, ranks[i].host, ranks[i].data, ranks[i].checkpoint, ranks[i].evaluation,
        ranks[i].waiting, ranks[i].queued, ranks[i].late);
  return line + "]}\n";
}

const std::string some_timeline =
    R"({"kind":"start","time":1000,"start":1,"ranks":2,"step":0,"resumed":false})"
    "\n"
    R"({"kind":"checkpoint","time":1010.5,"start":1,"step":10,"seconds":0.5,"path":"step-10"})"
    "\n"
    R"({"kind":"failure","time":1012,"start":1,"line":"lockstep: replica 1 is gone","exit_code":137})"
    "\n"
    R"({"kind":"start","time":1020,"start":2,"ranks":2,"step":10,"resumed":true})"
    "\n"
    R"({"kind":"end","time":1030,"start":2,"step":20})"
    "\n";

/// All three files of a run.
std::filesystem::path make_run(const std::filesystem::path& folder) {
  write(
      folder / "run.json",
      R"({"format":1,"lockstep":"0.1.0","options":{"model":"mlp","seed":"1"},"ranks":[{"replica":0,"host":"a"}],"ended":null})");
  std::string metrics;
  for (int step = 1; step <= 20; ++step) metrics += train_line(step, 0.1 * step);
  write(folder / "metrics.jsonl",
        metrics + eval_line(20, 0.25) + parts_line(20, {{"worker:0", "a"}, {"worker:1", "b", 0.5, 0.11}}));
  write(folder / "timeline.jsonl", some_timeline);
  return folder;
}

OrderedJson data_of(const std::vector<std::filesystem::path>& paths) {
  return OrderedJson::parse(page_data(read_runs(paths)));
}

std::string all(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

}  // namespace

TEST_CASE("a curve of any length has few points, and keeps every peak and the mean") {
  Curves curves{64};
  constexpr int steps = 100'000;
  for (int step = 1; step <= steps; ++step) {
    const double value = step == 77'777 ? 1000 : step == 12'345 ? -1000 : step % 2;
    curves.add({step, 8.0 * step, 0.5 * step}, {value, nan_value});
  }
  CHECK(curves.points().size() <= 64);
  CHECK(curves.points().size() > 32);
  CHECK(curves.total(0).least == -1000);
  CHECK(curves.total(0).greatest == 1000);
  CHECK(curves.total(0).count == steps);
  CHECK(curves.total(1).count == 0);
  std::int64_t previous = 0, counted = 0;
  for (const Curves::Point& point : curves.points()) {
    CHECK(point.last.step == previous + point.steps);
    previous = point.last.step;
    counted += point.steps;
    if (point.columns[0].least == 0 && point.columns[0].greatest == 1)
      CHECK(point.columns[0].mean() == Approx(0.5).margin(0.01));
  }
  CHECK(counted == steps);
}

TEST_CASE("the speed of a step comes from its own time, also after a resumption, whose clock begins anew") {
  const TemporaryDirectory folder;
  write(folder.path() / "m", train_line(1, 1) + train_line(2, 3) + train_line(3, 0.5) + train_line(4, 1));
  Metrics metrics{64};
  read_metrics(folder.path() / "m", metrics);
  REQUIRE(metrics.train.points().size() == 4);
  const double expected[] = {64, 32, 128, 128};
  for (std::size_t i = 0; i < 4; ++i)
    CHECK(metrics.train.points()[i].columns[train_samples_per_second].mean() == expected[i]);
  CHECK(metrics.training_seconds == 4);
}

TEST_CASE("files that are cut off at any byte are read up to there") {
  const TemporaryDirectory folder;
  const auto run = make_run(folder.path() / "run");
  for (const char* const name : {"metrics.jsonl", "timeline.jsonl", "run.json"}) {
    const std::string text = read_file(run / name);
    for (std::size_t size = 0; size < text.size(); size += text.size() < 1500 ? 1 : 7) {
      write(run / name, text.substr(0, size));
      const auto runs = read_runs({run});
      if (name == std::string{"metrics.jsonl"}) {
        CAPTURE(size);
        const auto lines = std::count(text.begin(), text.begin() + std::ptrdiff_t(size), '\n');
        // A last line that lacks nothing but its end counts.
        CHECK(runs[0].metrics.steps >= std::min<std::int64_t>(20, lines));
        CHECK(runs[0].metrics.steps <= lines + 1);
        CHECK(runs[0].metrics.lines.unreadable == 0);
      }
      CHECK(OrderedJson::accept(page_data(runs)));
    }
    write(run / name, text);
  }
}

TEST_CASE("lines that cannot be read are counted and skipped") {
  const TemporaryDirectory folder;
  const auto run = make_run(folder.path() / "run");
  write(run / "metrics.jsonl", train_line(1, 1) + "{\"kind\":\"train\",\"step\":2,\"lo" + train_line(3, 3) +
                                   "\n\n[1]\n" + "{\"kind\":\"novel\",\"step\":3}\n" + train_line(4, 4) +
                                   "{\"kind\":\"tr");
  const auto runs = read_runs({run});
  CHECK(runs[0].metrics.steps == 4);
  CHECK_THAT(all(runs[0].notes),
             Contains("metrics.jsonl: 2 lines cannot be read, the first of them line 2; 1 line is of a "
                      "kind that this version does not know; the last line is not complete"));
}

TEST_CASE("missing and empty files, and other versions, are told and not refused") {
  const TemporaryDirectory folder;
  const auto run = make_run(folder.path() / "run");
  write(run / "run.json", R"({"format":2,"options":[1,2],"ranks":{"a":1},"result":7,"command":"x"})");
  write(run / "metrics.jsonl", "");
  std::filesystem::remove(run / "timeline.jsonl");
  const auto runs = read_runs({run});
  const std::string notes = all(runs[0].notes);
  for (const char* const told :
       {"run.json has the format 2", "metrics.jsonl has no step yet", "timeline.jsonl is missing"})
    CHECK_THAT(notes, Contains(told));
  CHECK_NOTHROW(page_of(runs));

  std::filesystem::remove(run / "run.json");
  CHECK_THAT(all(read_runs({run})[0].notes), Contains("run.json is missing"));
  std::filesystem::remove(run / "metrics.jsonl");
  CHECK_THROWS_AS(read_runs({run}), ConfigError);
  write(run / "other", "no metrics at all\n");
  CHECK_THROWS_WITH(read_runs({run / "other"}), Contains("has no line of metrics"));
  CHECK_THROWS_WITH(read_runs({run / "none"}), Contains("No such file or directory"));
  // Where run.json says that the metrics are, and nowhere else.
  write(run / "run.json", R"({"format":1,"paths":{"metrics":"../elsewhere.jsonl","timeline":"timeline.jsonl"}})");
  CHECK_THAT(all(read_runs({run})[0].notes), Contains("../elsewhere.jsonl is missing\n"));
  // A file of metrics alone, which may have just been made.
  write(run / "other", "");
  CHECK_NOTHROW(read_runs({run / "other"}));
}

TEST_CASE("a run.json or a timeline that cannot be read costs a page no more than what it says") {
  const TemporaryDirectory folder;
  for (const char* const name : {"run.json", "timeline.jsonl"}) {
    const auto run = make_run(folder.path() / name);
    std::filesystem::remove(run / name);
    std::filesystem::create_directory(run / name);
    const auto runs = read_runs({run});
    CHECK(runs[0].metrics.steps == 20);
    CHECK_THAT(all(runs[0].notes), Contains((run / name).string() + ": is a folder"));
  }
}

TEST_CASE("an event at a time that a browser has no date for is a line that cannot be read") {
  const TemporaryDirectory folder;
  const auto run = make_run(folder.path() / "run");
  write(run / "timeline.jsonl", some_timeline + R"({"kind":"stop","time":1e14,"start":2,"step":20})"
                                                "\n");
  const auto runs = read_runs({run});
  CHECK(runs[0].timeline->events.size() == 5);
  CHECK_THAT(all(runs[0].notes), Contains("timeline.jsonl: 1 line cannot be read, the first of them line 6"));
}

TEST_CASE("a run without a step has no loss") {
  const TemporaryDirectory folder;
  write(folder.path() / "m", "");
  CHECK(data_of({folder.path() / "m"})["runs"][0]["last_loss"].is_null());
}

TEST_CASE("a loss that is not finite is a gap and a finding") {
  const TemporaryDirectory folder;
  write(folder.path() / "m",
        train_line(1, 1) + train_line(2, 2, "null") + train_line(3, 3, "NaN") + train_line(4, 4, "1e999"));
  const auto runs = read_runs({folder.path() / "m"});
  CHECK_THAT(all(findings_of(runs[0])), Contains("The loss of 3 steps is not finite, first at step 2"));
  const OrderedJson data = data_of({folder.path() / "m"});
  CHECK(data["runs"][0]["train"]["loss"]["mean"].dump() == "[0.5,null,null,null]");
}

TEST_CASE("findings name the rank or the host that the others waited for, and why") {
  const TemporaryDirectory folder;
  const auto told = [&](const std::string& lines) {
    write(folder.path() / "m", train_line(1, 1) + lines);
    return all(findings_of(read_runs({folder.path() / "m"})[0]));
  };
  // Half of the time, it was late by 22%.
  CHECK_THAT(told(parts_line(10, {{"worker:0", "a"}, {"worker:1", "b", 0.5, 0.22}}) +
                  parts_line(20, {{"worker:0", "a"}, {"worker:1", "b", 0.5, 0}})),
             Contains("Replica 1 (worker:1, host b): the others waited 11% of the time for it, mostly in data\n"));
  CHECK_THAT(
      told(parts_line(
          10, {{"worker:0", "a"}, {"worker:1", "a"}, {"worker:2", "b", 0.5, 0.07}, {"worker:3", "b", 0.5, 0.09}})),
      Catch::Equals("Host b: the others waited 8.0% of the time for its 2 ranks, all of which were late\n"));
  CHECK_THAT(told(parts_line(10, {{"worker:0", "a", 0.5}, {"worker:1", "a", 0.6}})),
             Contains("Loading data took at least 25% of the time on every rank\n"));
  CHECK(told(parts_line(10, {{"worker:0", "a"}, {"worker:1", "b", 0.1, 0.049}})) == "");
}

TEST_CASE("findings tell parts that take long on every rank, and time in the sums") {
  const TemporaryDirectory folder;
  const auto told = [&](const std::vector<RankParts>& ranks) {
    write(folder.path() / "m", train_line(1, 1) + parts_line(10, ranks));
    return all(findings_of(read_runs({folder.path() / "m"})[0]));
  };
  CHECK(told({{.name = "0", .host = "a", .checkpoint = 0.2}, {.name = "1", .host = "b", .checkpoint = 0.3}}) ==
        "Checkpoints took at least 10% of the time on every rank\n");
  CHECK(told({{.name = "0", .host = "a", .checkpoint = 0.2}, {.name = "1", .host = "b"}}) == "");
  CHECK(told({{.name = "0", .host = "a", .evaluation = 0.4}, {.name = "1", .host = "b", .evaluation = 0.5}}) ==
        "Evaluations took at least 20% of the time on every rank\n");
  CHECK(told({{.name = "0", .host = "a", .waiting = 0.5}, {.name = "1", .host = "b", .waiting = 0.6}}) ==
        "The ranks waited 25% of the time, and no rank was late: the time goes into the sums between them\n");
  // Ranks wait in a sum for one that has no processor there.
  CHECK(told({{.name = "0", .host = "a", .waiting = 0.5}, {.name = "1", .host = "b", .waiting = 0.6, .queued = 0.5}}) ==
        "Replica 1 (1, host b) waited for a processor for 25% of the time, because something else had it; the others "
        "waited for this replica in the sums\n");
  CHECK(told({{.name = "0", .host = "a", .queued = 0.3}, {.name = "1", .host = "b", .queued = 0.5}}) ==
        "Every rank waited for a processor for at least 15% of the time: the hosts have too few\n");
  CHECK(told({{.name = "0", .host = "a", .queued = 0.2}, {.name = "1", .host = "b", .queued = 0.5}}) ==
        "Replica 1 (1, host b) waited for a processor for 25% of the time, because something else had it; the others "
        "waited for this replica in the sums\n");
  CHECK(told({{.name = "0", .host = "a", .queued = 0.5}}) ==
        "Replica 0 (0, host a) waited for a processor for 25% of the time, because something else had it\n");
  // Who waits for a late rank anyway loses nothing by it.
  CHECK(told({{.name = "0", .host = "a", .queued = 0.5}, {.name = "1", .host = "b", .late = 0.2, .queued = 0.6}}) ==
        "Replica 1 (1, host b): the others waited 20% of the time for it, mostly in data\n"
        "Replica 1 (1, host b) waited for a processor for 30% of the time, because something else had it\n");
  CHECK(told({{.name = "0", .host = "a", .queued = 0.5}, {.name = "1", .host = "b", .late = 0.2}}) ==
        "Replica 1 (1, host b): the others waited 20% of the time for it, mostly in data\n");
  CHECK(told({{.name = "0", .host = "a"}, {.name = "1", .host = "b", .queued = 0.19}}) == "");
  std::vector<RankParts> late;
  for (int rank = 0; rank < 7; ++rank) late.push_back({.name = "r", .host = fmt::format("h{}", rank), .late = 0.1});
  CHECK_THAT(told(late), Contains("The others waited for 3 more ranks\n"));
}

TEST_CASE("findings tell slower steps, uneven batches and an evaluation loss that rises") {
  const TemporaryDirectory folder;
  const auto told = [&](const std::string& lines) {
    write(folder.path() / "m", lines);
    return all(findings_of(read_runs({folder.path() / "m"})[0]));
  };
  const auto steps = [](double later, int smaller) {
    std::string lines;
    double clock = 0;
    for (int step = 1; step <= 60; ++step)
      lines += train_line(step, clock += step <= 30 ? 0.25 : later, "0.5", step % 2 ? 64 : smaller);
    return lines;
  };
  CHECK(told(steps(0.25, 64)) == "");
  CHECK(told(steps(0.5, 64)) == "Steps became slower: 250 ms each at first, 500 ms in the last quarter\n");
  CHECK(told(steps(0.25, 32)) == "Batches differ: 32 to 64 samples in a step, 48 on average\n");
  CHECK(told(train_line(1, 1) + eval_line(1, 0.25) + eval_line(2, 0.5)) ==
        "The evaluation loss was lowest at step 1 (0.25), and is 0.5 at the end\n");
  CHECK(told(train_line(1, 1) + eval_line(1, 0.25) + eval_line(2, 0.26)) == "");
}

TEST_CASE("the page of a long run is small") {
  const TemporaryDirectory folder;
  const auto run = make_run(folder.path() / "run");
  std::string lines, timeline = R"({"kind":"start","time":1000,"start":1,"ranks":2,"step":0,"resumed":false})"
                                "\n";
  for (int step = 1; step <= 100'000; ++step) {
    lines += train_line(step, 0.001 * step * (1 + step % 7 / 1e3), "0.123456789");
    if (step % 3 == 0)
      lines += parts_line(
          step, {{.name = "0", .host = "a", .late = 0.123456789}, {.name = "1", .host = "b", .late = 0.0123456789}});
    if (step % 10 > 0) continue;
    lines += eval_line(step, 0.123456789 + step);
    timeline += fmt::format(R"({{"kind":"checkpoint","time":{},"start":1,"step":{},"seconds":0.5,"path":"step-{}"}})"
                            "\n",
                            1000 + step, step, step);
  }
  write(run / "metrics.jsonl", lines);
  write(run / "timeline.jsonl", timeline);
  CHECK(page_of(read_runs({run})).size() < 1'000'000);
}

TEST_CASE("the state of a run is that of its last start") {
  const TemporaryDirectory folder;
  const auto run = make_run(folder.path() / "run");
  CHECK(read_runs({run})[0].state() == "ended");
  const std::size_t second = some_timeline.find("{\"kind\":\"start\"", 10);
  write(run / "timeline.jsonl", some_timeline.substr(0, second));
  CHECK(read_runs({run})[0].state() == "failed");
  write(run / "timeline.jsonl", some_timeline.substr(0, some_timeline.find("{\"kind\":\"end\"")));
  CHECK(read_runs({run})[0].state() == "not ended");
  CHECK_THAT(all(findings_of(read_runs({run})[0])),
             Contains("1 failure: replica 1 is gone\nThe run was started 2 times\n"));
}

TEST_CASE("runs of the same name are told apart") {
  CHECK(names_of({"/a/run", "/b/run"}) == std::vector<std::string>{"a/run", "b/run"});
  CHECK(names_of({"/a/one/", "/a/two"}) == std::vector<std::string>{"one", "two"});
  CHECK(names_of({"/a/run", "/a/run/"}) == std::vector<std::string>{"run", "run (2)"});
  CHECK(names_of({"/a/run", "/b/run", "/a/run"}) == std::vector<std::string>{"a/run", "b/run", "a/run (2)"});
  CHECK(names_of({"/", "/a"}) == std::vector<std::string>{"/", "a"});
}

TEST_CASE("nothing in a run's texts becomes code of the page") {
  const TemporaryDirectory folder;
  const std::string evil = "<!--<script></script><img src=x onerror=alert(1)>&\"' \xff";
  const auto run = make_run(folder.path() / ("evil<img>&\"\xfe"));
  std::string json = evil;
  for (std::size_t at = 0; (at = json.find('"', at)) != json.npos; at += 2) json.insert(at, 1, '\\');
  write(run / "run.json", fmt::format(R"({{"format":1,"options":{{"{0}":"{0}"}},"command":["{0}"]}})", json));
  const std::string page = page_of(read_runs({run}));
  CHECK_THAT(page, !Contains("<img") && !Contains("<!--<script") && !Contains("\xff") && !Contains("\xfe"));
  std::size_t scripts = 0, ends = 0;
  for (std::size_t at = 0; (at = page.find("<script", at)) != page.npos; ++at) ++scripts;
  for (std::size_t at = 0; (at = page.find("</script", at)) != page.npos; ++at) ++ends;
  CHECK(scripts == 4);
  CHECK(ends == 4);
  const OrderedJson options = data_of({run})["runs"][0]["options"];
  CHECK(options.begin().value() == as_utf8(evil));
  CHECK((page.find("Permission is hereby granted") != page.npos) == page_has_charts());
  // It asks for nothing.
  CHECK_THAT(page, !Contains("<link") && !Contains("@import") && Contains("default-src 'none'"));
}

TEST_CASE("lockstep-report writes a page, replaces only its own, and refuses the rest in one line") {
  const TemporaryDirectory folder;
  const auto run = make_run(folder.path() / "run");
  const std::string program = std::getenv("LOCKSTEP_REPORT");
  const std::string page = folder.path() / "page.html";
  const auto report = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), program);
    return run_command(arguments);
  };
  for (int times = 0; times < 2; ++times) CHECK(report({run, "-o", page}).exit_code == 0);
  CHECK(read_file(page).starts_with(page_begin));
  CHECK(report({run, "-o", "-"}).out.starts_with(page_begin));
  write(folder.path() / "letter", "Dear Sir or Madam");
  for (const std::vector<std::string>& wrong :
       std::vector<std::vector<std::string>>{{},
                                             {folder.path() / "none"},
                                             {folder.path() / "letter", "-o", page},
                                             {run, "-o", folder.path() / "letter"},
                                             {run, "-o", folder.path()},
                                             {run, "-o"},
                                             {run, "--nothing"},
                                             {"/dev/null", "-o", page}}) {
    const auto refused = report(wrong);
    CHECK(refused.exit_code == 2);
    CHECK_THAT(refused.err, Catch::StartsWith("lockstep: error: ") && Contains("expected"));
    CHECK(std::count(refused.err.begin(), refused.err.end(), '\n') == 1);
  }
  CHECK(read_file(folder.path() / "letter") == "Dear Sir or Madam");
}
