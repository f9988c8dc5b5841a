// Somebody sets the clock while a training runs.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "support/training_job.hpp"

using namespace lockstep::test;

TEST_CASE("a clock that is set to and fro ends no job, and leaves no time that is negative in a record") {
  if (!std::getenv("LOCKSTEP_LACKING")) return;
  const TemporaryDirectory folder;
  const auto run = folder.path() / "run";
  const Trained trained =
      train(2, short_run() + Arguments{"--checkpoint-every", "1", "--eval-every", "1", "--run-dir", run, "--trace"},
            {.environment = {{"LD_PRELOAD", std::getenv("LOCKSTEP_LACKING")}, {"LOCKSTEP_TEST_LACKS", "time:1"}}});
  CHECK(trained.result.at("seconds").get<double>() > 0);
  std::vector<double> times;
  std::ifstream timeline{run / "timeline.jsonl"};
  for (std::string line; std::getline(timeline, line);) {
    const Json event = Json::parse(line);
    CAPTURE(event.dump());
    CHECK((!event.contains("seconds") || (event["seconds"] > 0 && event["seconds"] < 3600)));
    times.push_back(event.at("time"));
  }
  // It was set.
  CHECK_FALSE(std::ranges::is_sorted(times));
  double before = 0;
  for (const Json& step : trained.metrics) {
    if (step.at("kind") != "train") continue;
    const double now = step.at("seconds");
    CHECK((now >= before && now < 3600));
    before = now;
  }
}
