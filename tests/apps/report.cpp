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

#include <lockstep/core/base/error.hpp>

#include "apps/lockstep-report/curves.hpp"
#include "apps/lockstep-report/findings.hpp"
#include "apps/lockstep-report/json_members.hpp"
#include "apps/lockstep-report/metrics.hpp"
#include "apps/lockstep-report/page.hpp"
#include "apps/lockstep-report/run.hpp"
#include "report_files.hpp"
#include "support/job.hpp"

using namespace lockstep;
using namespace lockstep::report;
using namespace lockstep::test;
using namespace lockstep::test::report_files;
using Catch::Contains;

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
