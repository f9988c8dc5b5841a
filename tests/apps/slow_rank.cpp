// Who holds up the others, in jobs with a rank that is slow by request: how much, and in what.
#include <cmath>
#include <string>

#include <catch2/catch.hpp>
#include <fmt/format.h>

#include "support/training_job.hpp"

using namespace lockstep::test;

namespace {

/// Of the last interval, which has as many steps as any before it.
struct Blame {
  double late;      ///< of the slow rank
  double injected;  ///< the share of the time that it has slept
  double others;    ///< how late the others are, the latest of them
  std::string mostly;
  std::string out, err;  ///< of the job
};

/// Trains with rank 1 `factor` times as slow in `part`, or in both passes if that is empty.
Blame blame_of(int ranks, double factor, const std::string& part, int steps) {
  const std::string fault = fmt::format("slow:1:{}{}{}", factor, part.empty() ? "" : ":", part);
  const TemporaryDirectory folder;
  const auto metrics = folder.path() / "metrics";
  const Outcome outcome = run_job(ranks,
                                  {"--data", small_data(), "--hidden", "256,128", "--steps", std::to_string(2 * steps),
                                   "--eval-every", std::to_string(steps), "--eval-samples", "8", "--global-batch",
                                   "512", "--attest-every", "100000", "--metrics", metrics},
                                  {.environment = {{"LOCKSTEP_FAULT", fault}}});
  INFO(outcome.err);
  REQUIRE(outcome.exit_code == 0);
  CHECK(lines_starting_with(outcome.err, "[rank 0] warning: LOCKSTEP_FAULT: replica 1 takes ").size() == 1);
  const Json report = read_parts(metrics).back();
  const Json& slow = report["ranks"][1];
  const double work =
      part.empty() ? slow["forward"].get<double>() + slow["backward"].get<double>() : slow[part].get<double>();
  Blame blame{.late = slow["late"].get<double>(),
              .injected = work * (1 - 1 / factor) / report["seconds"].get<double>(),
              .others = 0,
              .mostly = slow["mostly"].get<std::string>(),
              .out = outcome.out,
              .err = outcome.err};
  for (const Json& each : report["ranks"])
    if (each["replica"] != 1) blame.others = std::max(blame.others, each["late"].get<double>());
  return blame;
}

}  // namespace

TEST_CASE("a rank that is slow in its passes is blamed for them, by as much as it is slow") {
  // It sleeps for most of the time, so that it matters little what else the machine does.
  const Blame blame = blame_of(2, 20, "", 4);
  INFO(blame.late << " late, " << blame.injected << " injected, others " << blame.others);
  CHECK(std::abs(blame.late - blame.injected) < 0.1);
  CHECK(blame.late > 0.5);
  CHECK(blame.others < 0.1);
  CHECK((blame.mostly == "forward" || blame.mostly == "backward"));
}

TEST_CASE("a slow rank of several is named with its share and the part", "[extended]") {
  const auto [ranks, part] = GENERATE(table<int, std::string>(
      {{2, ""}, {4, ""}, {8, ""}, {2, "data"}, {4, "data"}, {2, "optimizer"}, {4, "optimizer"}}));
  const Blame blame = blame_of(ranks, 20, part, part.empty() ? 400 : 1000);
  INFO(ranks << " ranks, " << part << ": " << blame.late << " late, " << blame.injected << " injected, others "
             << blame.others << "\n"
             << blame.err);
  CHECK(std::abs(blame.late - blame.injected) < 0.1);
  if (!part.empty()) CHECK(blame.mostly == part);
  // More ranks than processors delay each other, so the line and the result may name others too.
  CHECK(blame.err.find("the others waited ") != std::string::npos);
  const Json result = Json::parse(blame.out);
  const Json& late = result.at("late");
  REQUIRE_FALSE(late.empty());
  CHECK(late[0]["replica"] == 1);
}
