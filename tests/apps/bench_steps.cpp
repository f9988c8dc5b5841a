// lockstep-bench step, end to end.
#include <chrono>
#include <map>

#include <catch2/catch.hpp>

#include "benched.hpp"

using namespace lockstep::test;

namespace {

const std::vector<std::string> step_parts{"data",          "forward",   "backward",  "waiting",
                                          "communication", "agreement", "optimizer", "other"};

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
      // A rank alone has nobody to agree with.
      if (ranks > 1 || step_parts[part] != "agreement") CHECK(row[step_parts[part]].get<double>() > 0);
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

TEST_CASE("step reports parts that add up to the step, of 8 shards and of one a rank", "[long]") {
  const int ranks = GENERATE(1, 4);
  const Benched benched = bench(ranks, {"step", "--global-batch", "19", "--steps", "2", "--iterations", "3"});
  check_steps(benched, ranks, "mlp", 19, {8, ranks});
}

TEST_CASE("step trains each model, with a global batch of its own", "[long]") {
  const auto [model, batch] = GENERATE(table<std::string, int>({{"mlp", 256}, {"convnet", 128}, {"gpt", 16}}));
  const Benched benched =
      bench(2, {"step", "--model", model, "--shards", "4", "--steps", "1", "--iterations", "1", "--warm-up", "0"});
  check_steps(benched, 2, model, batch, {4, 2});
}

TEST_CASE("step compares nothing where the shards are one a rank already") {
  const Arguments quick{"step", "--global-batch", "6", "--steps", "1", "--iterations", "1", "--warm-up", "0"};
  check_steps(bench(3, quick + Arguments{"--shards", "3"}), 3, "mlp", 6, {3});
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
  const Benched benched = bench(
      2, {"step", "--compare", compare, "--global-batch", "6", "--steps", "1", "--iterations", "7", "--warm-up", "1"});
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
}

TEST_CASE("step compresses gradients, and shares the optimizer's state among the ranks") {
  const Benched benched = bench(2, {"step", "--compress-gradients", "bf16", "--shard-optimizer", "--shards", "ranks",
                                    "--global-batch", "6", "--steps", "1", "--iterations", "1", "--warm-up", "0"});
  const Json& row = benched.json["rows"][0];
  CHECK(row.at("compression") == "bf16");
  // A momentum for each parameter, in slices of 4096, and some padding.
  CHECK(row.at("state").get<double>() == Approx(4.0 * parameters_of.at("mlp") / 2).epsilon(0.02));
}

TEST_CASE("step refuses too few iterations for an interval") {
  check_refused(refuse(2, {"step", "--compare", "trace", "--steps", "1", "--iterations", "5"}),
                {"--iterations 5 are too few", "at least 6"});
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
