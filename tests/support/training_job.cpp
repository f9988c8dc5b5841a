#include "support/training_job.hpp"

#include <algorithm>
#include <cstdlib>
#include <sstream>
#include <stdexcept>
#include <string_view>

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

Arguments small_gpt(const TemporaryDirectory& folder) {
  return {"--model",  "gpt", "--data",    folder.write("text", small_text(4000)),
          "--layers", "2",   "--embed",   "16",
          "--heads",  "2",   "--context", "8"};
}

std::string small_text(std::size_t size) {
  static const char* const words[] = {"the",   "ranks", "sum", "gradients", "in",   "one",  "order", "and",
                                      "every", "copy",  "of",  "a",         "step", "ends", "alike", "again"};
  std::string text;
  std::uint32_t state = 1;
  while (text.size() < size) {
    state = state * 1664525 + 1013904223;  // the generator of Numerical Recipes
    text += words[state >> 28];
    text += state >> 20 & 7 ? " " : ".\n";
  }
  text.resize(size);
  return text;
}

std::size_t bytes_of(const std::string& written) {
  const auto is_digit = [&](std::size_t at) {
    return at < written.size() && std::string_view{"0123456789abcdef"}.find(written[at]) != std::string_view::npos;
  };
  std::size_t bytes = written.size();
  for (std::size_t at = 0; (at = written.find("\\x", at)) != std::string::npos; at += 2)
    if (is_digit(at + 2) && is_digit(at + 3)) bytes -= 3;
  return bytes;
}

Trained train(int ranks, const Arguments& arguments, const CommandOptions& options) {
  const TemporaryDirectory folder;
  const std::filesystem::path metrics = folder.path() / "metrics.jsonl";
  const auto names = [&](const char* option) { return std::ranges::find(arguments, option) != arguments.end(); };
  const Arguments data = names("--data") ? Arguments{} : Arguments{"--data", small_data()};
  const Outcome outcome = run_job(ranks, data + Arguments{"--metrics", metrics} + arguments, options);
  INFO("ranks: " << ranks << "\nstdout: " << outcome.out << "\nstderr: " << outcome.err);
  REQUIRE(outcome.exit_code == 0);
  REQUIRE(outcome.out.ends_with("}\n"));
  const std::size_t last_line = outcome.out.rfind('\n', outcome.out.size() - 2) + 1;  // 0 where it is the only one
  CHECK((last_line > 0) == names("--sample"));
  CHECK(lines_starting_with(outcome.err, "lockstep:").empty());
  CHECK(processes_left(outcome.marker).empty());

  return {Json::parse(outcome.out.substr(last_line)), read_metrics(metrics), outcome.out.substr(0, last_line),
          read_parts(metrics)};
}

std::vector<std::string> keys_of(const Json& object) {
  std::vector<std::string> keys;
  for (const auto& [key, value] : object.items()) keys.push_back(key);
  return keys;
}

namespace {

enum class Lines { all_but_parts, parts };

std::vector<Json> read_lines(const std::filesystem::path& file, Lines wanted) {
  std::vector<Json> read;
  std::istringstream lines{read_file(file)};
  for (std::string line; std::getline(lines, line);) {
    Json object = Json::parse(line);
    if ((object["kind"] == "parts") == (wanted == Lines::parts)) read.push_back(std::move(object));
  }
  return read;
}

}  // namespace

std::vector<Json> read_metrics(const std::filesystem::path& file) {
  return read_lines(file, Lines::all_but_parts);
}

std::vector<Json> read_parts(const std::filesystem::path& file) {
  return read_lines(file, Lines::parts);
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

void check_same(const Trained& one, const Trained& other) {
  // The bits of nothing but NaN are the same too.
  CHECK(one.result["train_loss"].is_number());
  CHECK(other.digest() == one.digest());
  CHECK(without_times(other.metrics) == without_times(one.metrics));
  CHECK(other.written == one.written);
  const auto steps_of = [](const std::vector<Json>& lines) {
    std::vector<int> steps;
    for (const Json& line : lines) steps.push_back(line["step"].get<int>());
    return steps;
  };
  CHECK(steps_of(other.parts) == steps_of(one.parts));
  for (const char* key : {"shards", "steps", "samples", "train_loss", "eval_loss", "eval_accuracy", "eval_r2",
                          "eval_mean_absolute_error"}) {
    INFO(key);
    CHECK(other.result.value(key, Json{}) == one.result.value(key, Json{}));
  }
}

void check_same_on(const std::vector<int>& rank_counts, const Arguments& arguments) {
  const Trained first = train(rank_counts.front(), arguments);
  for (std::size_t i = 1; i < rank_counts.size(); ++i) {
    INFO(rank_counts[i] << " ranks against " << rank_counts.front());
    check_same(first, train(rank_counts[i], arguments));
  }
}

Outcome run_refused(int ranks, const Arguments& arguments, CommandOptions options) {
  options.environment.insert(kills_at_once);
  return run_job(ranks, arguments, options);
}

Outcome run_refused_command(const std::vector<std::string>& command) {
  Environment environment = mpi_environment();
  environment.insert(kills_at_once);
  return run_command(command, {.environment = environment});
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
