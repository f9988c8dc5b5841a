// What lockstep-report says of a run in words, and what it marks.
#include <string>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>
#include <fmt/format.h>

#include "apps/lockstep-report/findings.hpp"
#include "report_files.hpp"
#include "support/job.hpp"

using namespace lockstep;
using namespace lockstep::report;
using namespace lockstep::test;
using namespace lockstep::test::report_files;
using Catch::Contains;

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

TEST_CASE("a training that falls while the evaluation rises overfits, and a small rise must last") {
  const TemporaryDirectory folder;
  const auto told = [&](const std::vector<double>& evaluations, bool falls) {
    std::string lines;
    for (std::size_t i = 0; i < evaluations.size(); ++i) {
      const auto step = static_cast<std::int64_t>(i + 1);
      lines += train_line(step, 0.1 * double(step), falls ? fmt::format("{}", 0.5 / double(step)) : "0.5");
      lines += eval_line(step, evaluations[i]);
    }
    write(folder.path() / "m", lines);
    return all(findings_of(read_runs({folder.path() / "m"})[0]));
  };
  CHECK(
      told({0.3, 0.25, 0.5}, true) ==
      "The evaluation loss was lowest at step 2 (0.25), and is 0.5 at the end, while the training loss fell from 0.25 "
      "to 0.1667: the model overfits, and its weights of step 2 are the best\n");
  CHECK(told({0.3, 0.25, 0.5}, false) == "The evaluation loss was lowest at step 2 (0.25), and is 0.5 at the end\n");
  CHECK_THAT(told({0.25, 0.254, 0.258, 0.262}, true), Contains("lowest at step 1") && Contains("the model overfits"));
  CHECK(told({0.25, 0.258, 0.262}, true) == "");
  CHECK(told({0.25, 0.254, 0.258, 0.262}, false) == "");
  CHECK(told({0.25, 0.254, 0.26, 0.2501}, true) == "");
}

TEST_CASE("the best evaluation is marked, in every column by what is good there") {
  const TemporaryDirectory folder;
  const auto line = [](int step, double loss, double accuracy) {
    return fmt::format(R"({{"kind":"eval","step":{},"epoch":1,"loss":{},"accuracy":{},"seconds":0.5}})"
                       "\n",
                       step, loss, accuracy);
  };
  write(folder.path() / "m",
        train_line(1, 1) + line(1, 0.5, 0.6) + line(2, 0.25, 0.7) + line(3, 0.3, 0.8) + line(4, 0.25, 0.1));
  const OrderedJson run = data_of({folder.path() / "m"})["runs"][0];
  CHECK(run["eval"]["loss"]["best"] == 1);
  CHECK(run["eval"]["accuracy"]["best"] == 2);
  CHECK(run["best_evaluation"] == OrderedJson{{"step", 2}, {"loss", 0.25}});
  CHECK_FALSE(run["train"]["loss"].contains("best"));
  write(folder.path() / "m", train_line(1, 1));
  CHECK_FALSE(data_of({folder.path() / "m"})["runs"][0].contains("best_evaluation"));
}

TEST_CASE("what runs have not recorded is not said to be the same") {
  const TemporaryDirectory folder;
  const auto same = [&](const std::string& a, const std::string& b) {
    for (const auto& [name, text] : {std::pair{"a", a}, std::pair{"b", b}}) {
      write(make_run(folder.path() / name) / "run.json", text);
      if (text.empty()) std::filesystem::remove(folder.path() / name / "run.json");
    }
    const OrderedJson said = data_of({folder.path() / "a", folder.path() / "b"})["same"];
    return said["known"].get<std::string>() + "|" + said["unknown"].get<std::string>();
  };
  const std::string whole = R"({"format":1,"lockstep":"1","mpi":"2","options":{"seed":1},"data":{"train":"t"}})",
                    no_data = R"({"format":1,"lockstep":"1","mpi":"2","options":{"seed":1},"data":{}})";
  CHECK(same(whole, whole) == "They have the same options, versions and data.|");
  CHECK(
      same(whole, no_data) ==
      "They have the same options and versions.|Not known: whether they have the same data, which b does not record.");
  CHECK(same(no_data, no_data) ==
        "They have the same options and versions.|Not known: whether they have the same data, "
        "which a and b do not record.");
  const std::string nothing =
      R"({"format":1,"lockstep":"1","mpi":null,"options":{"seed":""},"data":{"train":null,"test":{}}})";
  CHECK(same(nothing, whole) ==
        "|Not known: whether they have the same options, versions and data, which a does not record.");
  CHECK(same("", "") ==
        "|Not known: whether they have the same options, versions and data, which a and b do not record.");
}
