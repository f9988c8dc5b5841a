// A flipped bit, end to end: found at the next attestation, said in one line, and what is known written down.
#include <filesystem>
#include <string>

#include <catch2/catch.hpp>
#include <fmt/format.h>

#include "support/training_job.hpp"

using namespace lockstep::test;

namespace {

struct Flip {
  int ranks, rank, step;
};

const Arguments as_by_default{"--hidden", "16", "--steps", "9", "--global-batch", "64"};
const Arguments small_mlp = as_by_default + Arguments{"--attest-first", "0"};

/// "variable 'dense_0/weight'", which the rank that flips a bit says itself.
std::string flipped(const Outcome& outcome, int rank) {
  const std::string said = fmt::format("[rank {}] warning: LOCKSTEP_FAULT: a bit of element ", rank);
  const auto lines = lines_starting_with(outcome.err, said);
  REQUIRE(lines.size() == 1);
  const auto begin = lines.front().find("variable '");
  REQUIRE(begin != std::string::npos);
  return lines.front().substr(begin, lines.front().find("' is another one") + 1 - begin);
}

Outcome run_with(const Flip& flip, const Arguments& arguments) {
  const Environment environment{{"LOCKSTEP_FAULT", fmt::format("flip:{}:{}", flip.rank, flip.step)}, kills_at_once};
  return run_job(flip.ranks, Arguments{"--data", small_data()} + arguments, {.environment = environment});
}

void check_report(const Json& report, const Flip& flip, const std::string& name) {
  CHECK(report["blamed"] == (flip.ranks > 2 ? Json::array({flip.rank}) : Json::array()));
  REQUIRE(report["differing"].size() == 1);  // the weight alone: gradients are summed before they are applied
  CHECK(report["differing"][0]["name"] == name);
  const Json& digests = report["differing"][0]["digests"];
  REQUIRE(digests.size() == static_cast<std::size_t>(flip.ranks));
  const auto of = [&](int rank) { return digests[static_cast<std::size_t>(rank)].get<std::string>(); };
  for (int rank = 0; rank < flip.ranks; ++rank) {
    CHECK(of(rank).size() == 16);
    CHECK((of(rank) == of(flip.rank)) == (rank == flip.rank));
  }
}

/// Checks that the job ends with the attestation of step `found`, from 1, and what it leaves.
void check_found(const Flip& flip, const Arguments& arguments, int found) {
  INFO("flip:" << flip.rank << ":" << flip.step << " on " << flip.ranks << " ranks");
  const TemporaryDirectory folder;
  const std::filesystem::path metrics = folder.path() / "metrics.jsonl";
  const Outcome outcome = run_with(flip, arguments + Arguments{"--metrics", metrics});
  INFO("stdout: " << outcome.out << "\nstderr: " << outcome.err);
  CHECK(outcome.exit_code == 6);
  CHECK(outcome.out.empty());
  const std::string name = flipped(outcome, flip.rank);
  const auto lines = lines_starting_with(outcome.err, "lockstep:");
  REQUIRE(lines.size() == 1);
  CHECK_THAT(lines.front(), Catch::StartsWith(fmt::format("lockstep: replica {} (", flip.ranks > 2 ? flip.rank : 0)));
  CHECK_THAT(lines.front(), Catch::Contains((flip.ranks > 2 ? " differs from the others in " : " of ") + name));
  if (flip.ranks == 2) CHECK_THAT(lines.front(), Catch::Contains(", replica 1 ("));
  if (flip.ranks == 2) CHECK_THAT(lines.front(), Catch::Contains(": no majority can be told"));

  CHECK(read_metrics(metrics).size() == static_cast<std::size_t>(found - 1));
  const Json report = Json::parse(read_file(metrics.string() + ".attestation.json"));
  CHECK(report["step"] == found);
  CHECK("lockstep: " + report["message"].get<std::string>() == lines.front());
  check_report(report, flip, name);
  CHECK(processes_left(outcome.marker).empty());
}

}  // namespace

TEST_CASE("a flipped bit is found at the next attestation, on 2, 3 and 4 ranks") {
  const Arguments every_4 = small_mlp + Arguments{"--attest-every", "4"};
  check_found({2, 0, 0}, every_4, 4);
  check_found({3, 2, 3}, every_4, 4);
  check_found({4, 1, 4}, every_4, 8);
  check_found({4, 3, 6}, every_4, 8);
}

TEST_CASE("at the end of the run there is an attestation, however far it is to the next") {
  check_found({2, 1, 8}, small_mlp + Arguments{"--attest-every", "4"}, 9);
  check_found({3, 0, 1}, small_mlp, 9);  // every 100 by default
}

TEST_CASE("the first two steps attest by default, however far it is to the next") {
  check_found({2, 1, 0}, as_by_default, 1);
  check_found({3, 0, 1}, as_by_default, 2);
}

TEST_CASE("--attest-every 1 finds it in its step") {
  check_found({4, 0, 5}, small_mlp + Arguments{"--attest-every", "1", "--optimizer", "sgd"}, 6);
}

TEST_CASE("with batch norm and AdamW it is found, in the weights of norms too", "[extended]") {
  const Arguments convnet{"--model", "convnet",        "--batch-norm", "--optimizer",    "adamw", "--steps",
                          "4",       "--global-batch", "16",           "--attest-every", "2",     "--attest-first",
                          "0"};
  for (const auto& [flip, found] :
       {std::pair{Flip{3, 1, 0}, 2}, std::pair{Flip{2, 0, 1}, 2}, std::pair{Flip{4, 2, 2}, 4}})
    check_found(flip, convnet, found);
}

TEST_CASE("--attest-every 0 looks at nothing, and finds nothing") {
  const Flip flip{2, 1, 2};
  const Outcome outcome = run_with(flip, small_mlp + Arguments{"--attest-every", "0"});
  INFO("stderr: " << outcome.err);
  CHECK(outcome.exit_code == 0);
  (void)flipped(outcome, flip.rank);
  CHECK(lines_starting_with(outcome.err, "lockstep:").empty());
}

TEST_CASE("without --metrics nothing is written, and the line is the same") {
  const Outcome outcome = run_with({3, 1, 2}, small_mlp);
  INFO("stderr: " << outcome.err);
  CHECK(outcome.exit_code == 6);
  CHECK(lines_starting_with(outcome.err, "lockstep: replica 1 (").size() == 1);
}

TEST_CASE("how often it attests changes nothing in a run that goes well, and what an earlier one found goes") {
  const TemporaryDirectory folder;
  const std::filesystem::path metrics = folder.path() / "metrics.jsonl";
  const std::filesystem::path found = folder.write("metrics.jsonl.attestation.json", "{}");
  const auto digest_with = [&](const char* every) {
    const Outcome outcome =
        run_job(2, Arguments{"--data", small_data(), "--metrics", metrics, "--attest-every", every} + small_mlp);
    REQUIRE(outcome.exit_code == 0);
    CHECK_FALSE(std::filesystem::exists(found));
    return Json::parse(outcome.out)["weights_digest"];
  };
  const Json digest = digest_with("1");
  CHECK(digest_with("0") == digest);
  CHECK(digest_with("100") == digest);
}
