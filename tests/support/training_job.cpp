#include "support/training_job.hpp"

#include <algorithm>
#include <cstdlib>
#include <sstream>
#include <stdexcept>

#include <catch2/catch.hpp>

namespace lockstep::test {

std::filesystem::path small_data() {
  const char* const folder = std::getenv("LOCKSTEP_SMALL_DATA");
  if (!folder || !*folder)
    throw std::runtime_error{"LOCKSTEP_SMALL_DATA is not set, expected a folder of IDX files; `meson test` sets it"};
  return folder;
}

Arguments operator+(Arguments left, const Arguments& right) {
  left.insert(left.end(), right.begin(), right.end());
  return left;
}

Arguments short_run() {
  return {"--data", small_data(), "--hidden", "16", "--steps", "3"};
}

Trained train(int ranks, const Arguments& arguments, const CommandOptions& options) {
  const TemporaryDirectory folder;
  const std::filesystem::path metrics = folder.path() / "metrics.jsonl";
  const Outcome outcome = run_job(ranks, Arguments{"--data", small_data(), "--metrics", metrics} + arguments, options);
  INFO("ranks: " << ranks << "\nstdout: " << outcome.out << "\nstderr: " << outcome.err);
  REQUIRE(outcome.exit_code == 0);
  REQUIRE(std::count(outcome.out.begin(), outcome.out.end(), '\n') == 1);
  CHECK(outcome.out.back() == '\n');
  CHECK(lines_starting_with(outcome.err, "lockstep:").empty());
  CHECK(processes_left(outcome.marker).empty());

  Trained trained{Json::parse(outcome.out), {}};
  std::istringstream lines{read_file(metrics)};
  for (std::string line; std::getline(lines, line);) trained.metrics.push_back(Json::parse(line));
  return trained;
}

std::string without_times(const std::vector<Json>& metrics) {
  std::string text;
  for (Json line : metrics) {
    line.erase("seconds");
    line.erase("samples_per_second");
    text += line.dump() + '\n';
  }
  return text;
}

void check_same_on(const std::vector<int>& rank_counts, const Arguments& arguments) {
  const Trained first = train(rank_counts.front(), arguments);
  for (std::size_t i = 1; i < rank_counts.size(); ++i) {
    INFO(rank_counts[i] << " ranks against " << rank_counts.front());
    const Trained other = train(rank_counts[i], arguments);
    CHECK(other.digest() == first.digest());
    CHECK(without_times(other.metrics) == without_times(first.metrics));
    for (const char* key : {"shards", "steps", "samples", "train_loss", "eval_loss", "eval_accuracy"}) {
      INFO(key);
      CHECK(other.result[key] == first.result[key]);
    }
  }
}

Outcome run_refused(int ranks, const Arguments& arguments, CommandOptions options) {
  options.environment["OMPI_MCA_odls_base_sigkill_timeout"] = "0";
  return run_job(ranks, arguments, options);
}

void check_refused(const Outcome& outcome, const std::vector<std::string>& told) {
  INFO("stdout: " << outcome.out << "\nstderr: " << outcome.err);
  CHECK_FALSE(outcome.timed_out);
  CHECK(outcome.exit_code == 2);
  CHECK(outcome.out.empty());
  CHECK(lines_starting_with(outcome.err, "lockstep:").size() == 1);
  const std::vector<std::string> errors = lines_starting_with(outcome.err, "lockstep: error: ");
  CHECK(errors.size() == 1);
  for (const std::string& piece : told) CHECK_THAT(errors.empty() ? "" : errors.front(), Catch::Contains(piece));
  CHECK(processes_left(outcome.marker).empty());
}

}  // namespace lockstep::test
