// lockstep-bench end to end: what it measures is not asserted, but all that must hold whatever the times are.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <regex>
#include <sstream>

#include <catch2/catch.hpp>
#include <unistd.h>

#include "support/training_job.hpp"

using namespace lockstep::test;

namespace {

Outcome run_bench(int ranks, const Arguments& arguments, Environment environment = {}) {
  const char* const program = std::getenv("LOCKSTEP_BENCH");
  if (!program) throw std::runtime_error{"LOCKSTEP_BENCH is not set, expected the path of lockstep-bench"};
  environment.insert(mpi_environment().begin(), mpi_environment().end());
  environment["CUDA_VISIBLE_DEVICES"] = "";  // whatever this machine has, `auto` is the CPU
  return run_command(Arguments{"mpirun", "-n", std::to_string(ranks), program} + arguments, {environment});
}

/// A job that is to be refused: mpirun kills what is left at once, the ranks must not need its usual second.
Outcome refuse(int ranks, const Arguments& arguments) {
  return run_bench(ranks, arguments, {kills_at_once});
}

std::vector<std::string> words_of(const std::string& line) {
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
Benched bench(int ranks, const Arguments& arguments) {
  const TemporaryDirectory folder;
  const std::filesystem::path json = folder.write("bench.json", std::string(100000, 'x'));
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

const std::vector<std::string> all_reduce_columns{"bytes", "count", "dtype",    "time", "algbw",
                                                  "busbw", "error", "mpi_time", "ratio"};
const std::vector<std::string> merge_call_columns{"merges", "time", "mpi_time", "ratio", "agreements", "bytes"};

const std::vector<std::string> step_parts{"data",          "forward",   "backward",  "waiting",
                                          "communication", "agreement", "optimizer", "other"};

const std::vector<std::string> network_columns{"bytes",     "latency",       "mpi_latency", "one_way", "mpi_one_way",
                                               "both_ways", "mpi_both_ways", "sum",         "ratio"};

const std::vector<std::string> watchdog_columns{"store", "meeting", "atomic", "ratio", "seconds", "cpu"};

void check_head(const Json& json, const std::string& name, int ranks) {
  std::vector<std::string> keys;
  for (const auto& [key, value] : json.items()) keys.push_back(key);
  CHECK(keys == std::vector<std::string>{"bench", "ranks", "device", "rows"});
  CHECK(json["bench"] == name);
  CHECK(json["ranks"] == ranks);
  CHECK(json["device"] == "cpu");
}

/// Rows of `sizes`, whose sums are exact, with rates that follow from times. `more` are columns besides.
void check_all_reduce(const Benched& benched, int ranks, const std::vector<std::int64_t>& sizes,
                      const std::string& dtype, std::int64_t element_bytes, const std::vector<std::string>& more = {}) {
  check_head(benched.json, "all-reduce", ranks);
  const Json& rows = benched.json["rows"];
  REQUIRE(rows.size() == sizes.size());
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const Json& row = rows[i];
    INFO(row.dump());
    std::vector<std::string> keys;
    for (const auto& [key, value] : row.items()) keys.push_back(key);
    CHECK(keys == all_reduce_columns + more);
    CHECK(row["bytes"].is_number_integer());
    CHECK(row["bytes"] == sizes[i]);
    CHECK(row["count"].is_number_integer());
    CHECK(row["count"] == sizes[i] / element_bytes);
    CHECK(row["dtype"] == dtype);
    REQUIRE(row["error"].is_number());
    CHECK(row["error"] == 0);
    for (const char* key : {"time", "algbw", "busbw", "mpi_time", "ratio"}) REQUIRE(row[key].is_number());
    const auto number = [&](const char* key) { return row[key].get<double>(); };
    CHECK(number("time") > 0);
    CHECK(number("mpi_time") > 0);
    CHECK(number("ratio") == Approx(number("time") / number("mpi_time")));
    CHECK(number("algbw") == Approx(static_cast<double>(sizes[i]) * 1e-9 / (number("time") * 1e-6)));
    CHECK(number("busbw") == Approx(number("algbw") * 2 * (ranks - 1) / ranks));
    CHECK(benched.table[i][0] == std::to_string(sizes[i]));
    CHECK(benched.table[i][more.empty() ? 6 : 5] == "0");  // with more columns, the type is in the title
  }
}

/// As the formulas of the layers give them: 784 * 512 + 512 + …
const std::map<std::string, int> parameters_of{{"mlp", 669706}, {"convnet", 1199882}, {"gpt", 842496}};

/// A row for each of `shards`, whose parts add up to the step: in JSON, and as they are rounded in the table.
void check_steps(const Benched& benched, int ranks, const std::string& model, int batch,
                 const std::vector<int>& shards) {
  check_head(benched.json, "step", ranks);
  const Json& rows = benched.json["rows"];
  REQUIRE(rows.size() == shards.size());
  for (std::size_t i = 0; i < shards.size(); ++i) {
    const Json& row = rows[i];
    INFO(row.dump());
    CHECK(keys_of(row) == std::vector<std::string>{"model", "parameters", "batch", "floor", "shards", "step"} +
                              step_parts + std::vector<std::string>{"ratio"});
    CHECK(row["model"] == model);
    CHECK(row["parameters"] == parameters_of.at(model));
    CHECK(row["batch"] == batch);
    CHECK(row["floor"].get<double>() > 0);
    CHECK(row["shards"].is_number_integer());
    CHECK(row["shards"] == shards[i]);
    double sum = 0, shown_sum = 0;
    for (std::size_t part = 0; part < step_parts.size(); ++part) {
      INFO(step_parts[part]);
      CHECK(row[step_parts[part]].get<double>() > 0);
      sum += row[step_parts[part]].get<double>();
      shown_sum += std::stod(benched.table[i][2 + part]);
    }
    CHECK(sum == Approx(row["step"].get<double>()).epsilon(1e-9));
    // Each of them is rounded to a hundredth, or to something finer.
    CHECK(shown_sum == Approx(std::stod(benched.table[i][1])).epsilon(0).margin(0.005 * 9));
    CHECK(row["ratio"].get<double>() > 0);
  }
  CHECK(rows.back()["ratio"] == 1);
}

}  // namespace

TEST_CASE("all-reduce reports sizes that double, with exact sums, on 1 to 4 ranks") {
  const int ranks = GENERATE(1, 2, 3, 4);
  const Benched benched = bench(ranks, {"all-reduce", "--max-bytes", "262144", "--iterations", "3", "--warm-up", "1"});
  std::vector<std::int64_t> sizes;
  for (std::int64_t bytes = 8; bytes <= 262144; bytes *= 2) sizes.push_back(bytes);
  check_all_reduce(benched, ranks, sizes, "f32", 4);
}

TEST_CASE("all-reduce with --limit sums exactly in shared and ordinary memory, beside what the memory gives") {
  // 8 MiB and a bit: more than ordinary memory exchanges at once, and no whole number of cache lines.
  const int ranks = GENERATE(2, 3);
  const Benched benched = bench(ranks, {"all-reduce", "--limit", "--min-bytes", "8388628", "--max-bytes", "8388628",
                                        "--iterations", "1", "--warm-up", "0"});
  check_all_reduce(benched, ranks, {8388628}, "f32", 4, {"ordinary", "copy", "add", "of_limit"});
  const Json& row = benched.json["rows"][0];
  INFO(row.dump());
  CHECK(row["ordinary"].get<double>() > 0);
  CHECK(row["copy"].get<double>() > 0);
  const double add_time = 2.0 * 8388628 * ranks / row["add"].get<double>() / 1e3;
  CHECK(row["of_limit"].get<double>() == Approx(add_time / row["time"].get<double>()));
}

TEST_CASE("all-reduce stops at the last size that is not above the largest") {
  const Benched benched = bench(2, {"all-reduce", "--min-bytes", "24", "--max-bytes", "101", "--dtype", "f64",
                                    "--device", "cpu", "--iterations", "4"});
  check_all_reduce(benched, 2, {24, 48, 96}, "f64", 8);
}

TEST_CASE("a merge_call is exactly one all-reduce of 16 bytes, on 1 to 4 ranks") {
  const int ranks = GENERATE(1, 2, 3, 4);
  const bool has_steps = ranks == 3;
  const Arguments steps = has_steps ? Arguments{"--steps", "4"} : Arguments{};
  const Benched benched =
      bench(ranks, Arguments{"merge-call", "--merges", "20", "--iterations", "3", "--warm-up", "2"} + steps);
  check_head(benched.json, "merge-call", ranks);
  REQUIRE(benched.json["rows"].size() == 1);
  const Json& row = benched.json["rows"][0];
  INFO(row.dump());
  std::vector<std::string> keys;
  for (const auto& [key, value] : row.items()) keys.push_back(key);
  const Arguments further = has_steps ? Arguments{"step", "of_two"} : Arguments{"run_time", "run_agreements"};
  CHECK(keys == merge_call_columns + further);
  for (const auto& [key, value] : row.items()) CHECK(value.is_number());
  CHECK(row["merges"] == 20);
  CHECK(row["agreements"] == 1);
  CHECK(row["bytes"] == 16);
  if (has_steps) {
    CHECK(row["step"] > 0);
    CHECK(row["of_two"] > 0);
  } else {
    CHECK(row["run_agreements"] == 1);  // its end
  }
  CHECK(row["ratio"].get<double>() == Approx(row["time"].get<double>() / row["mpi_time"].get<double>()));
  CHECK(benched.table[0][4] == "1");
}

TEST_CASE("the network carries TCP streams, messages of MPI and sums, at sizes that double, between 2 to 4 ranks") {
  const int ranks = GENERATE(2, 3, 4);
  const Benched benched = bench(ranks, {"network", "--min-bytes", "4", "--max-bytes", "19", "--iterations", "2"});
  check_head(benched.json, "network", ranks);
  const Json& rows = benched.json["rows"];
  REQUIRE(rows.size() == 3);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    INFO(rows[i].dump());
    CHECK(keys_of(rows[i]) == network_columns);
    for (const auto& [key, value] : rows[i].items()) CHECK(value.get<double>() > 0);
    CHECK(rows[i]["bytes"] == 4 << i);
    CHECK(rows[i]["ratio"].get<double>() == Approx(rows[i]["sum"].get<double>() / rows[i]["both_ways"].get<double>()));
  }
}

TEST_CASE("arithmetic tells the rate of each product, and of all of them") {
  const int ranks = GENERATE(1, 2);
  const Benched benched =
      bench(ranks, {"arithmetic", "--hidden", "8", "--global-batch", "24", "--iterations", "2", "--warm-up", "0"});
  check_head(benched.json, "arithmetic", ranks);
  const Json& rows = benched.json["rows"];
  REQUIRE(rows.size() == 9);
  double flops = 0, time = 0;
  for (const Json& row : rows) {
    INFO(row.dump());
    CHECK(row["lockstep"] > 0);
    const double peak = row["peak"].get<double>();
    CHECK(row["of_peak"].get<double>() == Approx(peak > 0 ? row["lockstep"].get<double>() / peak : 0));
    if (row["product"] == "all") continue;
    int m = 0, n = 0, k = 0, terms = 1;
    REQUIRE(std::sscanf(row["shape"].get<std::string>().c_str(), "%dx%dx%d*%d", &m, &n, &k, &terms) >= 3);
    const double own = 2.0 * m * n * k * terms;
    flops += own;
    time += own / row["lockstep"].get<double>();
  }
  CHECK(flops == 24 / ranks * 2 * (3 * (784 * 8 + 8 * 8 + 8 * 10) - 784 * 8));
  CHECK(rows[8]["product"] == "all");
  CHECK(rows[8]["lockstep"].get<double>() == Approx(flops / time));
}

TEST_CASE("predict says how long a step takes on nodes that are not there, and beyond which it was not verified") {
  const Benched benched = bench(1, {"predict", "--model", "mlp", "--hidden", "8", "--global-batch", "10", "--nodes",
                                    "1,4,5", "--rate", "1gbit,8mbit", "--delay", "3ms", "--iterations", "1"});
  check_head(benched.json, "predict", 1);
  const Json& rows = benched.json["rows"];
  REQUIRE(rows.size() == 3);
  for (const Json& row : rows) {
    INFO(row.dump());
    double sum = 0;
    for (const char* part : {"computation", "optimizer", "wire", "latency"}) sum += row[part].get<double>();
    CHECK(row["step"].get<double>() == Approx(sum));
    CHECK(row["efficiency"].get<double>() == Approx(rows[0]["step"].get<double>() / row["nodes"].get<double>() / sum));
    CHECK(row["computation"] > 0);
  }
  const double gradients = 4 * (784 * 8 + 8 + 8 * 8 + 8 + 8 * 10 + 10);
  CHECK(rows[0]["wire"] == 0);
  CHECK(rows[0]["limit"] == "computation");
  CHECK(rows[1]["wire"].get<double>() == Approx(1.5 * gradients / rows[1]["rate"].get<double>() / 1e3));
  CHECK(rows[1]["latency"] == (2 * 2 + 3 + 2) * 3);
  CHECK(rows[1]["limit"] == "wire");
  CHECK(rows[1]["batch"] == 3);
  CHECK(rows[1]["note"] == "-");
  CHECK(rows[2]["note"] == "not verified");
}

TEST_CASE("predict needs rates, or nodes between which it can measure them") {
  check_refused(refuse(1, {"predict"}), {"predict: there is no rate: expected --rate"});
  check_refused(refuse(2, {"predict"}), {"predict: ranks share a node", "expected one rank on each node, or --rate"});
}

TEST_CASE("one rank has no network to measure") {
  check_refused(refuse(1, {"network"}), {"network: there is one rank; expected two or more, on several nodes"});
}

TEST_CASE("the price of being watched is measured on every rank, against a bare store") {
  const int ranks = GENERATE(1, 2, 4);
  const Benched benched = bench(ranks, {"watchdog", "--seconds", "1"});
  check_head(benched.json, "watchdog", ranks);
  REQUIRE(benched.json["rows"].size() == 1);
  const Json& row = benched.json["rows"][0];
  INFO(row.dump());
  std::vector<std::string> keys;
  for (const auto& [key, value] : row.items()) keys.push_back(key);
  CHECK(keys == watchdog_columns);
  for (const auto& [key, value] : row.items()) CHECK(value.get<double>() > 0);
  CHECK(row["seconds"] == 1);
  CHECK(row["meeting"] > row["store"]);
  CHECK(row["ratio"].get<double>() == Approx(row["store"].get<double>() / row["atomic"].get<double>()));
  // No lock, no system call: a few stores.
  CHECK(row["ratio"] < 50);
  CHECK(row["cpu"] < 10);
}

TEST_CASE("the bytes that a node reads are counted, and the time to the first step is measured") {
  const char* const data = std::getenv("LOCKSTEP_SMALL_DATA");
  REQUIRE(data);
  const Benched benched = bench(GENERATE(1, 3), {"input", "--data", data});
  REQUIRE(benched.json["rows"].size() == 1);
  const Json& row = benched.json["rows"][0];
  INFO(row.dump());
  CHECK(row["data"] > 100'000);
  CHECK(row["ratio"].get<double>() == Approx(row["read"].get<double>() / row["data"].get<double>()));
  CHECK(row["ratio"] > 0.9);  // a file beside the data says what they are
  CHECK(row["ratio"] < 1.5);  // and programs read more than data
  CHECK(row["first_step"] > 0);
}

TEST_CASE("without --json a benchmark writes its table only") {
  const Outcome outcome = run_bench(2, {"merge-call", "--merges", "1", "--iterations", "1"});
  CHECK(outcome.exit_code == 0);
  CHECK(lines_starting_with(outcome.out, "").size() == 4);
  CHECK(outcome.err.empty());
}

TEST_CASE("a command line that is wrong is refused in one line, wherever that is found out") {
  check_refused(refuse(2, {}), {"no command was given: expected all-reduce or merge-call or network or step or "
                                "arithmetic or predict or input or watchdog"});
  check_refused(refuse(2, {"step", "--shards", "6"}),
                {"--shards is 6, which does not fit a job of 2 ranks", "expected"});
}

TEST_CASE("step reports parts that add up to the step, of 8 shards and of one a rank") {
  const int ranks = GENERATE(1, 2, 4);
  const Benched benched = bench(ranks, {"step", "--global-batch", "19", "--steps", "2", "--iterations", "3"});
  check_steps(benched, ranks, "mlp", 19, {8, ranks});
}

TEST_CASE("step trains each model, with a global batch of its own") {
  const auto [model, batch] = GENERATE(table<std::string, int>({{"mlp", 256}, {"convnet", 128}, {"gpt", 16}}));
  const Benched benched =
      bench(2, {"step", "--model", model, "--shards", "4", "--steps", "1", "--iterations", "1", "--warm-up", "0"});
  check_steps(benched, 2, model, batch, {4, 2});
}

TEST_CASE("step compares nothing where the shards are one a rank already") {
  const Arguments quick{"step", "--global-batch", "6", "--steps", "1", "--iterations", "1", "--warm-up", "0"};
  check_steps(bench(3, quick), 3, "mlp", 6, {3});
  check_steps(bench(2, quick + Arguments{"--shards", "ranks"}), 2, "mlp", 6, {2});
}

TEST_CASE("step compares reference kernels with the usual ones") {
  const Benched benched = bench(2, {"step", "--compare", "kernels", "--hidden", "9", "--global-batch", "6", "--steps",
                                    "1", "--iterations", "1", "--warm-up", "0"});
  const Json& rows = benched.json["rows"];
  REQUIRE(rows.size() == 2);
  CHECK(rows[0]["kernels"] == "reference");
  CHECK(rows[0]["ratio"] > 0);
  CHECK(rows[1]["ratio"] == 1);
  for (const Json& row : rows) CHECK(row["shards"] == 8);
}

TEST_CASE("step measures what a trace and the clock of the parts cost, with an interval") {
  const std::string compare = GENERATE("trace", "parts", "audit", "ledger", "overlap");
  const Arguments quick{"step", "--compare", compare, "--global-batch", "6", "--steps", "1"};
  const Benched benched = bench(2, quick + Arguments{"--iterations", "7", "--warm-up", "1"});
  REQUIRE(benched.json["rows"].size() == 1);
  const Json& row = benched.json["rows"][0];
  INFO(row.dump());
  CHECK(row["compare"] == compare);
  for (const char* cell : {"without", "with"}) CHECK(row[cell].get<double>() > 0);
  CHECK(row["low"] > -100);
  CHECK(row["low"] <= row["cost"]);
  CHECK(row["cost"] <= row["high"]);
  CHECK(row.contains("spans") == (compare == "trace"));
  if (compare == "overlap") {
    CHECK(row["sent"] == 0);  // on one node
    CHECK(row["early"] == 0);
  }
  if (compare == "trace") {
    // A step has its span, its parts, the layers of both passes, a sum and agreements.
    CHECK(row["spans"] > 15);
    CHECK(row["spans"] < 60);
    CHECK(row["off"] > 0);
  }
  check_refused(refuse(2, quick + Arguments{"--iterations", "5"}), {"--iterations 5 are too few", "at least 6"});
}

TEST_CASE("step measures the pauses of checkpoints, whose folder holds the last of them") {
  const TemporaryDirectory folder;
  const Benched benched = bench(2, {"step", "--global-batch", "6", "--shards", "4", "--steps", "1", "--iterations", "2",
                                    "--checkpoint-dir", folder.path()});
  const Json& rows = benched.json["rows"];
  REQUIRE(rows.size() == 2);
  for (const Json& row : rows) {
    CHECK(keys_of(row) == std::vector<std::string>{"model", "parameters", "batch", "floor", "shards", "step", "pause",
                                                   "of_step", "beside", "ratio"});
    for (const char* cell : {"step", "pause", "of_step", "beside"}) CHECK(row[cell].get<double>() > 0);
  }
  for (const char* shards : {"shards-4", "shards-2"})
    CHECK(std::filesystem::exists(folder.path() / shards / "latest" / "manifest.json"));
}

TEST_CASE("step trains an mlp of another size") {
  const Benched benched = bench(1, {"step", "--hidden", "3", "--global-batch", "6", "--steps", "1", "--shards", "ranks",
                                    "--iterations", "1", "--warm-up", "0"});
  CHECK(benched.json["rows"][0]["parameters"] == 784 * 3 + 3 + 3 * 3 + 3 + 3 * 10 + 10);
}

TEST_CASE("all steps together take a part of the job's time, in milliseconds") {
  const auto begin = std::chrono::steady_clock::now();
  const Benched benched = bench(2, {"step", "--steps", "6", "--iterations", "4", "--warm-up", "0"});
  const std::chrono::duration<double, std::milli> job = std::chrono::steady_clock::now() - begin;
  double steps = 0;
  for (const Json& row : benched.json["rows"]) steps += 6 * 4 * row["step"].get<double>();
  CHECK(steps < job.count());
  CHECK(steps > job.count() / 100);
}

TEST_CASE("a JSON file that cannot be written is refused before anything is measured") {
  const TemporaryDirectory folder;
  const std::string missing = folder.path() / "missing" / "bench.json";
  for (const std::string command : {"all-reduce", "merge-call", "step", "watchdog"})
    check_refused(refuse(2, {command, "--json", missing}),
                  {"--json " + missing + ": No such file or directory", "expected a file that can be written"});
  check_refused(refuse(1, {"merge-call", "--json", folder.path()}),
                {"--json " + folder.path().string() + ": Is a directory"});
}

TEST_CASE("a JSON file that cannot be written to the end is a failure that names it") {
  const Outcome outcome = refuse(1, {"merge-call", "--merges", "1", "--iterations", "1", "--json", "/dev/full"});
  CHECK(outcome.exit_code == 1);
  CHECK(lines_starting_with(outcome.err, "lockstep: error: --json /dev/full: No space left on device").size() == 1);
}

TEST_CASE("tensors beyond the host's memory are refused before it is asked for them") {
  // The largest size takes 16 GiB on each rank.
  const double host = static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGESIZE));
  const int ranks = static_cast<int>(host / 17179869184.0) + 1;
  check_refused(refuse(ranks, {"all-reduce", "--max-bytes", "4294967296"}),
                {"--max-bytes 4294967296: " + std::to_string(ranks) +
                     (ranks == 1 ? " rank on this host needs " : " ranks on this host need "),
                 "expected less"});
}

TEST_CASE("lockstep-bench refuses --device cuda without a GPU") {
  check_refused(refuse(2, {"all-reduce", "--device", "cuda"}),
                {"--device cuda: this node has no GPU that can be used", "or --device cpu"});
}

TEST_CASE("lockstep-bench refuses ranks that were started with different options") {
  const char* const program = std::getenv("LOCKSTEP_BENCH");
  REQUIRE(program);
  check_refused(run_refused_command({"mpirun", "-n", "1", program, "merge-call", "--merges", "3", ":", "-n", "1",
                                     program, "merge-call", "--merges", "4"}),
                {"replica 1 was started with other options than replica 0", "--merges 3", "--merges 4"});
}

TEST_CASE("help lists the commands, and the options of a command, once for the job") {
  constexpr int ranks = 3;
  const Outcome whole = run_bench(ranks, {"--help"});
  CHECK(whole.exit_code == 0);
  CHECK(whole.err.empty());
  for (const char* command : {"all-reduce", "merge-call", "step", "input", "watchdog"})
    CHECK(lines_starting_with(whole.out, std::string{"  "} + command + " ").size() == 1);

  const Outcome one = run_bench(ranks, {"all-reduce", "--help"});
  CHECK(one.exit_code == 0);
  for (const char* option :
       {"--min-bytes", "--max-bytes", "--dtype", "--device", "--warm-up", "--iterations", "--json"}) {
    INFO(option);
    CHECK(lines_starting_with(one.out, std::string{"  "} + option + " ").size() == 1);
  }
}

TEST_CASE("the help of step says what it trains, and where a rank's waiting is") {
  const Outcome help = run_bench(1, {"step", "--help"});
  CHECK(help.exit_code == 0);
  for (const char* option : {"--model", "--global-batch", "--hidden", "--shards", "--steps", "--checkpoint-dir",
                             "--warm-up", "--iterations", "--json"}) {
    INFO(option);
    CHECK(lines_starting_with(help.out, std::string{"  "} + option + " ").size() == 1);
  }
  CHECK_THAT(help.out, Catch::Contains("counts as waiting"));
}

TEST_CASE("the version of lockstep-bench is one line for the job") {
  const Outcome outcome = run_bench(2, {"--version"});
  CHECK(outcome.exit_code == 0);
  CHECK(std::regex_match(outcome.out, std::regex{"lockstep-bench [0-9]+\\.[0-9]+\\.[0-9]+\n"}));
}
