// The losses of lockstep-train's first steps against those that PyTorch computed from the same initial weights, samples
// and options: curves.json, which pytorch_losses.py makes.
#include <cmath>
#include <cstdlib>
#include <iterator>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "support/training_job.hpp"

using namespace lockstep::test;

namespace {

struct Curve {
  std::string name;
  Arguments options;
  std::vector<double> losses;
  double rounding;       ///< how far single precision takes PyTorch from them, relatively
  double bf16_rounding;  ///< the same for its autocast to bf16
};

std::vector<Curve> curves() {
  const char* const path = std::getenv("LOCKSTEP_LOSS_CURVES");
  if (!path || !*path)
    throw std::runtime_error{"LOCKSTEP_LOSS_CURVES is not set, expected the path of curves.json; `meson test` sets it"};
  const Json table = Json::parse(read_file(path));
  std::vector<Curve> all;
  for (const Json& each : table.at("curves")) {
    std::istringstream words{each.at("options").get<std::string>()};
    all.push_back({each.at("name").get<std::string>(),
                   {std::istream_iterator<std::string>{words}, {}},
                   each.at("losses").get<std::vector<double>>(),
                   each.at("rounding").get<double>(),
                   each.at("bf16_rounding").get<double>()});
  }
  return all;
}

std::vector<double> losses_of(int ranks, const Arguments& arguments) {
  const TemporaryDirectory folder;
  const std::filesystem::path metrics = folder.path() / "metrics.jsonl";
  const Outcome outcome = run_job(ranks, arguments + Arguments{"--metrics", metrics});
  INFO("stderr: " << outcome.err);
  REQUIRE(outcome.exit_code == 0);
  std::vector<double> losses;
  std::istringstream lines{read_file(metrics)};
  for (std::string line; std::getline(lines, line);)
    if (const Json step = Json::parse(line); step.at("kind") == "train") losses.push_back(step.at("loss"));
  return losses;
}

/// Written so that a NaN fails.
void check_within(double tolerance, const std::vector<double>& losses, const std::vector<double>& expected) {
  REQUIRE(losses.size() == expected.size());
  for (std::size_t step = 0; step < losses.size(); ++step) {
    INFO("step " << step + 1 << " of " << losses.size() << ": " << losses[step] << " against " << expected[step]);
    CHECK(std::abs(losses[step] / expected[step] - 1) <= tolerance);
  }
}

}  // namespace

TEST_CASE("there are 20 losses of every model, and of every optimizer") {
  std::string options;
  for (const Curve& curve : curves()) {
    INFO(curve.name);
    CHECK(curve.losses.size() == 20);
    for (const std::string& option : curve.options) options += option + ' ';
  }
  for (const char* const each :
       {"--model mlp", "--model convnet --batch-norm", "--model convnet --global-batch", "--model gpt",
        "--optimizer sgd", "--optimizer momentum", "--optimizer adamw", "--weight-decay", "--clip-norm",
        "--schedule cosine", "--warmup-steps", "--accumulate", "--shards"})
    CHECK_THAT(options, Catch::Contains(each));
}

TEST_CASE("in double precision the losses are PyTorch's but for the order of sums") {
  // Sums in another order differ by some 1e-16, and 20 steps of these curves raise that to no more than 1e-15. A
  // different computation shows: an epsilon of batch norm that is a thousandth larger changes the loss by 1e-7.
  for (const Curve& curve : curves()) {
    INFO(curve.name);
    check_within(1e-12, losses_of(1, curve.options + Arguments{"--dtype", "f64", "--kernels", "reference"}),
                 curve.losses);
  }
}

TEST_CASE("in single precision, with the kernels of a usual run, the losses are about as near to them as PyTorch's") {
  // Each curve has its own effect of rounding over 20 steps. PyTorch's largest is not the largest possible one.
  for (const Curve& curve : curves()) {
    INFO(curve.name);
    check_within(4 * curve.rounding, losses_of(2, curve.options), curve.losses);
  }
}

TEST_CASE("in bf16 the losses are about as near to them as those of PyTorch's autocast", "[extended]") {
  for (const Curve& curve : curves()) {
    INFO(curve.name);
    check_within(4 * curve.bf16_rounding, losses_of(2, curve.options + Arguments{"--precision", "bf16"}), curve.losses);
  }
}
