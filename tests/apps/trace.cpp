// The trace of a run: pictures of its ranks, and what a rank was doing when it was killed.
#include <cstdlib>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

#include "support/training_job.hpp"

using namespace lockstep::test;
using Catch::Contains;

namespace {

Json picture(const std::filesystem::path& file) {
  return Json::parse(read_file(file));
}

/// Whether the spans of each thread lie inside one another, or apart.
bool nest_like_blocks(const Json& picture) {
  using Span =
      std::pair<double, double>;  // its begin, and its end with the opposite sign, so that outer ones come first
  std::map<std::pair<int, int>, std::vector<Span>> threads;
  for (const Json& event : picture.at("traceEvents"))
    if (event.at("ph") == "X") {
      const double begin = event.at("ts");
      threads[{event.at("pid"), event.at("tid")}].emplace_back(begin, -begin - event.at("dur").get<double>());
    }
  constexpr double rounding = 0.01;  // of a microsecond
  for (auto& [thread, spans] : threads) {
    std::ranges::sort(spans);
    std::vector<double> ends;
    for (const auto& [begin, end] : spans) {
      while (!ends.empty() && ends.back() < begin + rounding) ends.pop_back();
      if (!ends.empty() && -end > ends.back() + rounding) return false;
      ends.push_back(-end);
    }
  }
  return true;
}

}  // namespace

TEST_CASE("a trace has every rank's steps, parts, layers, sums and waits, and changes no weights") {
  const TemporaryDirectory folder;
  const Arguments run{"--hidden", "8", "--steps", "6", "--global-batch", "64", "--shards", "4", "--eval-samples", "8"};
  const std::string digest = train(2, run).digest();
  CHECK(train(2, run + Arguments{"--run-dir", folder.path() / "run", "--trace"}).digest() == digest);
  const Json all = picture(folder.path() / "run/trace/all-ranks.trace");
  std::map<int, std::multiset<std::string>> names;
  std::map<int, std::set<std::string>> categories;
  for (const Json& event : all.at("traceEvents")) {
    if (event.at("ph") == "M") continue;
    CHECK(event.at("ph") == "X");
    names[event.at("pid")].insert(event.at("name"));
    categories[event.at("pid")].insert(event.at("cat"));
  }
  REQUIRE(names.size() == 2);
  for (const int rank : {0, 1}) {
    CAPTURE(rank);
    for (const char* name : {"ProfilerStep#1", "ProfilerStep#6", "data", "forward", "backward", "optimizer",
                             "evaluation", "dense_1", "bucket_0", "waiting", "the end of the step"})
      CHECK(names[rank].contains(name));
    CHECK(names[rank].count("ProfilerStep#6") == 1);  // the evaluation after it is none
    for (const char* category : {"user_annotation", "part", "layer", "sum", "wait"})
      CHECK(categories[rank].contains(category));
  }
  CHECK(nest_like_blocks(all));
  const Json one = picture(folder.path() / "run/trace/rank-1.json");
  CHECK(one.at("distributedInfo") == Json{{"backend", "mpi"}, {"rank", 1}, {"world_size", 2}});
  CHECK(nest_like_blocks(one));
}

TEST_CASE("of a rank that was killed, the trace says what it was doing") {
  const TemporaryDirectory folder;
  const auto run = folder.path() / "run";
  const Outcome job = run_job(2, {"--data", small_data(), "--hidden", "8", "--steps", "6", "--run-dir", run, "--trace"},
                              {.environment = {{"LOCKSTEP_FAULT", "kill:1:3"}}});
  std::ofstream{run / "trace/rank-2.ring"} << "of a rank that was killed at its start";
  CHECK(job.exit_code == 137);
  const Outcome inspected = run_command({std::getenv("LOCKSTEP_INSPECT"), "--trace", run / "trace"});
  INFO(inspected.out << inspected.err);
  CHECK(inspected.exit_code == 0);
  const auto lines = lines_starting_with(inspected.out, "rank-1.json: replica 1 (worker:1, host ");
  REQUIRE(lines.size() == 1);
  CHECK_THAT(lines.front(), Contains("; it was in step 4, "));
  CHECK_THAT(inspected.out, Contains("rank-2.ring: no file of a trace"));
  CHECK(std::filesystem::exists(run / "trace/rank-0.json"));
  CHECK(std::filesystem::exists(run / "trace/all-ranks.trace"));
}
