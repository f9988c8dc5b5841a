// A gradient that one rank computes wrong, end to end: found by the next audit, said in one line, and written down.
#include <filesystem>
#include <string>

#include <catch2/catch.hpp>

#include "support/training_job.hpp"

using namespace lockstep::test;

namespace {

Outcome run_audited(const Arguments& more, const Environment& environment) {
  return run_job(3, Arguments{"--data", small_data(), "--hidden", "8", "--steps", "6", "--global-batch", "12"} + more,
                 {.environment = environment});
}

}  // namespace

TEST_CASE("the next audit names the replica that computes wrong, in a line and in a file, and the job ends with 9") {
  const TemporaryDirectory folder;
  const std::filesystem::path metrics = folder.path() / "metrics.jsonl";
  const Arguments arguments{"--audit-every", "2", "--metrics", metrics};
  const Outcome outcome = run_audited(arguments, {{"LOCKSTEP_FAULT", "miscompute:1:2:always"}, kills_at_once});
  INFO("stdout: " << outcome.out << "\nstderr: " << outcome.err);
  CHECK(outcome.exit_code == 9);
  CHECK(outcome.out.empty());
  const auto lines = lines_starting_with(outcome.err, "lockstep:");
  REQUIRE(lines.size() == 1);
  CHECK_THAT(lines.front(), Catch::StartsWith("lockstep: replica 1 (worker:1, host ") &&
                                Catch::Contains(" of step 4 wrong: gradient of 'dense_") &&
                                Catch::EndsWith(" differs from replicas 0 and 2"));
  CHECK(read_metrics(metrics).size() == 3);  // the audited step is not applied

  const std::filesystem::path findings = metrics.string() + ".audit.json";
  const Json found = Json::parse(read_file(findings));
  CHECK("lockstep: " + found["message"].get<std::string>() == lines.front());
  CHECK(found["step"] == 4);
  CHECK(found["blamed"] == Json::array({1}));
  CHECK_THAT(lines.front(), Catch::Contains(" shard " + std::to_string(found["shard"].get<int>()) + " ") &&
                                Catch::Contains(": " + found["value"].get<std::string>() + " differs"));

  // Without a fault, audits change nothing, and what an earlier one found goes.
  const auto digest = [&](const Arguments& more) { return Json::parse(run_audited(more, {}).out)["weights_digest"]; };
  CHECK(digest(arguments) == digest({}));
  CHECK_FALSE(std::filesystem::exists(findings));
}
