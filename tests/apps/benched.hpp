// Runs lockstep-bench, and reads what it reports.
#pragma once

#include <cstdlib>
#include <sstream>

#include <catch2/catch.hpp>

#include "support/training_job.hpp"

namespace lockstep::test {

inline Outcome run_bench(int ranks, const Arguments& arguments, Environment environment = {}) {
  const char* const program = std::getenv("LOCKSTEP_BENCH");
  if (!program) throw std::runtime_error{"LOCKSTEP_BENCH is not set, expected the path of lockstep-bench"};
  environment.insert(mpi_environment().begin(), mpi_environment().end());
  environment["CUDA_VISIBLE_DEVICES"] = "";  // whatever this machine has, `auto` is the CPU
  return run_command(Arguments{"mpirun", "-n", std::to_string(ranks), program} + arguments, {environment});
}

/// A job that is to be refused: mpirun kills what is left at once, the ranks must not need its usual second.
inline Outcome refuse(int ranks, const Arguments& arguments) {
  return run_bench(ranks, arguments, {kills_at_once});
}

inline std::vector<std::string> words_of(const std::string& line) {
  std::istringstream words{line};
  std::vector<std::string> all;
  for (std::string word; words >> word;) all.push_back(word);
  return all;
}

/// What a run left: its table as words, and its JSON.
struct Benched {
  std::vector<std::vector<std::string>> table;
  Json json;
};

/// Runs a benchmark, requires that it ends well, and that the table and the JSON are the same rows.
inline Benched bench(int ranks, const Arguments& arguments) {
  const TemporaryDirectory folder;
  // A longer one, of an earlier measurement.
  const std::filesystem::path json = folder.write("bench.json", R"({"bench":")" + std::string(100000, 'x'));
  const Outcome outcome = run_bench(ranks, arguments + Arguments{"--json", json});
  INFO("ranks: " << ranks << "\nstdout: " << outcome.out << "\nstderr: " << outcome.err);
  REQUIRE(outcome.exit_code == 0);
  CHECK(lines_starting_with(outcome.err, "lockstep:").empty());
  CHECK(processes_left(outcome.marker).empty());

  Benched benched{{}, Json::parse(read_file(json))};
  const Json& rows = benched.json.at("rows");
  auto lines = lines_starting_with(outcome.out, "");
  for (const std::string& line : lines) CHECK(line.size() <= 101);  // the last column's heading may end beyond
  if (lines.size() == 4 + rows.size()) {
    lines[0] += lines[1].substr(1);  // a title of two lines
    lines.erase(lines.begin() + 1);
  }
  REQUIRE(lines.size() == 3 + rows.size());
  REQUIRE_FALSE(rows.empty());
  CHECK(lines[0].starts_with("# lockstep-bench " + benched.json["bench"].get<std::string>() + ": " +
                             std::to_string(ranks) + (ranks == 1 ? " rank" : " ranks") + ", device cpu"));
  REQUIRE(lines[1].starts_with("#"));
  CHECK(lines[2].starts_with("#"));
  const std::vector<std::string> names = words_of(lines[1].substr(1));
  for (std::size_t i = 0; i < rows.size(); ++i) {
    std::vector<std::string> keys;
    for (const auto& [key, value] : rows[i].items())
      if (lines[0].find(", " + key + " ") == std::string::npos) keys.push_back(key);
    CHECK(keys == names);
    benched.table.push_back(words_of(lines[3 + i]));
    if (rows[i].contains("note") && rows[i]["note"] == "not verified") benched.table.back().pop_back();  // two words
    CHECK(benched.table.back().size() == names.size());
  }
  return benched;
}

/// What the JSON of a benchmark begins with.
inline void check_head(const Json& json, const std::string& name, int ranks) {
  CHECK(keys_of(json) == std::vector<std::string>{"bench", "ranks", "device", "rows"});
  CHECK(json["bench"] == name);
  CHECK(json["ranks"] == ranks);
  CHECK(json["device"] == "cpu");
}

}  // namespace lockstep::test
