// lockstep-bench end to end: what it measures is not asserted, but all that must hold whatever the times are.
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <string>

#include <catch2/catch.hpp>
#include <unistd.h>

#include "benched.hpp"

using namespace lockstep::test;

namespace {

const std::vector<std::string> all_reduce_columns{"bytes", "count", "dtype",    "time", "algbw",
                                                  "busbw", "error", "mpi_time", "ratio"};
const std::vector<std::string> merge_call_columns{"merges", "time", "mpi_time", "ratio", "agreements", "bytes"};

const std::vector<std::string> request_columns{"bytes", "blocking", "submit", "request", "ratio", "cpu"};

const std::vector<std::string> exact_sum_columns{"sum", "numbers", "dtype", "bytes", "plain", "exact", "ratio", "rate"};

const std::vector<std::string> network_columns{"tcp",         "bytes",     "latency",       "mpi_latency", "one_way",
                                               "mpi_one_way", "both_ways", "mpi_both_ways", "sum",         "ratio"};

const std::vector<std::string> scale_columns{"per_node", "delay",     "rate", "seed",    "ranks",     "nodes",
                                             "what",     "agree",     "own",  "own_avg", "own_bytes", "mpi",
                                             "mpi_avg",  "mpi_bytes", "time", "table",   "shared"};

const std::vector<std::string> watchdog_columns{"store", "meeting", "atomic", "ratio", "seconds", "cpu"};

/// Rows of `sizes`, whose sums are exact, with rates that follow from times. `more` are columns besides.
void check_all_reduce(const Benched& benched, int ranks, const std::vector<std::int64_t>& sizes,
                      const std::string& dtype, std::int64_t element_bytes, const std::vector<std::string>& more = {}) {
  check_head(benched.json, "all-reduce", ranks);
  const Json& rows = benched.json["rows"];
  REQUIRE(rows.size() == sizes.size());
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const Json& row = rows[i];
    INFO(row.dump());
    CHECK(keys_of(row) == all_reduce_columns + more);
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

TEST_CASE("all-reduce with --explain tells the path of a sum, its order, the nodes and what it costs") {
  const Outcome told = run_bench(2, {"all-reduce", "--explain", "64K"});
  CHECK(told.exit_code == 0);
  CHECK_THAT(told.out, Catch::Contains("bytes 65536 B, dtype f32, path in shared memory,\n# order fixed-order sum,\n"
                                       "# cost no messages; between two fences") &&
                           Catch::EndsWith("          1          0          0\n"));
}

TEST_CASE("all-reduce stops at the last size that is not above the largest") {
  const Benched benched = bench(2, {"all-reduce", "--min-bytes", "24", "--max-bytes", "101", "--dtype", "f64",
                                    "--device", "cpu", "--iterations", "4"});
  check_all_reduce(benched, 2, {24, 48, 96}, "f64", 8);
}

TEST_CASE("a merge_call is exactly one agreement of 16 bytes a round, on 1 to 4 ranks") {
  const int ranks = GENERATE(1, 2, 3, 4);
  const bool has_steps = ranks == 3;
  const Arguments steps = has_steps ? Arguments{"--steps", "4"} : Arguments{};
  const Benched benched =
      bench(ranks, Arguments{"merge-call", "--merges", "20", "--iterations", "3", "--warm-up", "2"} + steps);
  check_head(benched.json, "merge-call", ranks);
  REQUIRE(benched.json["rows"].size() == 1);
  const Json& row = benched.json["rows"][0];
  INFO(row.dump());
  const Arguments further = has_steps ? Arguments{"step", "of_two"} : Arguments{"run_time", "run_agreements"};
  CHECK(keys_of(row) == merge_call_columns + further);
  for (const auto& [key, value] : row.items()) CHECK(value.is_number());
  CHECK(row["merges"] == 20);
  const int agreements = ranks == 1 ? 0 : 1;  // a rank alone has nobody to agree with
  CHECK(row["agreements"] == agreements);
  CHECK(row["bytes"] == 16 * agreements);
  if (has_steps) {
    CHECK(row["step"] > 0);
    CHECK(row["of_two"] > 0);
  } else {
    CHECK(row["run_agreements"] == agreements);  // its end
  }
  CHECK(row["ratio"].get<double>() == Approx(row["time"].get<double>() / row["mpi_time"].get<double>()));
  CHECK(benched.table[0][4] == std::to_string(agreements));
}

TEST_CASE("requests sum exactly, beside sums that block, and show what a wait for a late rank takes") {
  const Benched benched = bench(3, {"requests", "--min-bytes", "2048", "--max-bytes", "4096", "--iterations", "2"});
  check_head(benched.json, "requests", 3);
  const Json& rows = benched.json["rows"];
  REQUIRE(rows.size() == 2);
  for (const Json& row : rows) {
    INFO(row.dump());
    CHECK(keys_of(row) == request_columns);
    for (const char* key : {"blocking", "submit", "request", "cpu"}) CHECK(row[key].get<double>() > 0);
    CHECK(row["ratio"].get<double>() == Approx(row["request"].get<double>() / row["blocking"].get<double>()));
  }
}

TEST_CASE("exact-sum has every exact sum right, beside plain sums of the same numbers") {
  const int ranks = GENERATE(1, 2, 3);
  const Benched benched = bench(ranks, {"exact-sum", "--bytes", "4104", "--local-bytes", "8200", "--iterations", "2"});
  check_head(benched.json, "exact-sum", ranks);
  const Json& rows = benched.json["rows"];
  REQUIRE(rows.size() == 14);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const Json& row = rows[i];
    INFO(row.dump());
    CHECK(keys_of(row) == exact_sum_columns);
    CHECK(row["sum"] == (i == 0 ? "one" : i == 1 ? "object" : i < 8 ? "array" : "local"));
    CHECK(row["dtype"] == (i < 2 || i % 2 == 0 ? "f64" : "f32"));
    CHECK(row["bytes"] == (i < 2 ? 8 : i < 8 ? 4104 : 8200));
    const double plain = row["plain"].get<double>(), exact = row["exact"].get<double>();
    CHECK(plain > 0);
    CHECK(row["ratio"].get<double>() == Approx(exact / plain));
    CHECK(row["rate"].get<double>() == Approx(plain / exact));
  }
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
    for (const auto& [key, value] : rows[i].items())
      if (key != "tcp") CHECK(value.get<double>() > 0);
    std::string known;  // to this kernel
    std::getline(std::ifstream{"/proc/sys/net/ipv4/tcp_available_congestion_control"}, known);
    CHECK_THAT(" " + known + " ", Catch::Contains(" " + rows[i]["tcp"].get<std::string>() + " "));
    CHECK(rows[i]["bytes"] == 4 << i);
    CHECK(rows[i]["ratio"].get<double>() == Approx(rows[i]["sum"].get<double>() / rows[i]["both_ways"].get<double>()));
  }
}

TEST_CASE("arithmetic tells the rate of each product, and of all of them", "[long]") {
  const int ranks = 2;
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
    for (const char* part : {"computation", "exposed", "latency"}) sum += row[part].get<double>();
    CHECK(row["step"].get<double>() == Approx(sum));
    CHECK(row["efficiency"].get<double>() == Approx(rows[0]["step"].get<double>() / row["nodes"].get<double>() / sum));
    CHECK(row["computation"] > 0);
  }
  // Each variable begins at a multiple of 256 bytes.
  const double gradients = 4 * 784 * 8 + 256 + 256 + 256 + 512 + 256;
  CHECK(rows[0]["wire"] == 0);
  CHECK(rows[1]["exposed"] <= rows[1]["wire"]);
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
  const int ranks = GENERATE(1, 4);
  const Benched benched = bench(ranks, {"watchdog", "--seconds", "1"});
  check_head(benched.json, "watchdog", ranks);
  REQUIRE(benched.json["rows"].size() == 1);
  const Json& row = benched.json["rows"][0];
  INFO(row.dump());
  CHECK(keys_of(row) == watchdog_columns);
  for (const auto& [key, value] : row.items()) CHECK(value.get<double>() > 0);
  CHECK(row["seconds"] == 1);
  CHECK(row["meeting"] > row["store"]);
  CHECK(row["ratio"].get<double>() == Approx(row["store"].get<double>() / row["atomic"].get<double>()));
  // No lock, no system call: a few stores.
  CHECK(row["ratio"] < 50);
  CHECK(row["cpu"] < 10);
}

TEST_CASE("scale counts what simulated ranks send, and tells all of them of a death") {
  const Benched benched = bench(1, {"scale", "--ranks", "2,64", "--bytes", "8,64K", "--seed", "1"});
  check_head(benched.json, "scale", 1);
  const Json& rows = benched.json["rows"];
  const std::vector<std::string> all{"start", "agreement", "sum:8",     "sum:64K", "step",
                                     "death", "stop",      "heartbeat", "gone",    "silent"};
  REQUIRE(rows.size() == 2 * all.size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const Json& row = rows[i];
    INFO(row.dump());
    CHECK(keys_of(row) == scale_columns);
    const int ranks = i < all.size() ? 2 : 64, rounds = ranks == 2 ? 1 : 6;
    CHECK(row["ranks"] == ranks);
    CHECK(row["nodes"] == (ranks == 2 ? 1 : 8));
    const std::string what = row["what"];
    CHECK(what == all[i % all.size()]);
    const std::map<std::string, int> agreements{{"start", 16}, {"agreement", 1}, {"step", 2}};
    CHECK(row["agree"] == (agreements.contains(what) ? agreements.at(what) * rounds : 0));
    if (what == "agreement") CHECK(row["own_bytes"] == 16 * rounds);
    if (what == "sum:8") CHECK(row["mpi"] == (ranks == 2 ? 1 : 6));
    if (what == "death") CHECK(row["time"] == 50'000);
    if (what == "stop") CHECK(row["time"] == 60'000'000);
    // Ten a second to each of five nodes that are near.
    if (what == "heartbeat") CHECK(row["own"] == (ranks == 2 ? 0 : 50));
    if (what == "gone") CHECK(row["time"] < 1'000'000);
    if (what == "silent") CHECK((row["time"] > 9'900'000 && row["time"] < 15'000'000));
    CHECK(row["table"] > 100);
    CHECK(row["table"] < (ranks == 2 ? 280 : 190));  // nodes of 2 and of 8 ranks
    CHECK(row["shared"] == 512);
  }
  check_refused(refuse(2, {"scale"}), {"scale in a job of 2 ranks: expected one"});
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
  check_refused(refuse(2, {}),
                {"no command was given: expected all-reduce or merge-call or requests or exact-sum or network or step "
                 "or arithmetic or predict or input or watchdog or scale"});
  check_refused(refuse(2, {"step", "--shards", "1"}), {"--shards is 1, and the job has 2 ranks", "expected"});
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
  CHECK(outcome.exit_code == 7);
  CHECK(
      lines_starting_with(outcome.err, "lockstep: error: --json /dev/full: cannot be written: No space left").size() ==
      1);
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
  for (const char* command : {"all-reduce", "merge-call", "requests", "exact-sum", "step", "input", "watchdog"})
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

TEST_CASE("lockstep-bench says its version once for the job") {
  const Outcome outcome = run_bench(2, {"--version"});
  CHECK(outcome.exit_code == 0);
  CHECK_THAT(outcome.out,
             Catch::Matches("lockstep-bench [0-9]+\\.[0-9]+\\.[0-9]+\ncommit .+\nMPI .+\noneDNN .+\nCUDA .+\n"));
}
