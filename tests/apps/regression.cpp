// Tables whose columns are scaled, and regressions, on simulated ranks: from the options to predictions.
#include <cmath>
#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include <lockstep/core/base/error.hpp>

#include "apps/simulated_training.hpp"
#include "support/quiet_log.hpp"
#include "support/refused_options.hpp"

using namespace lockstep;
using namespace lockstep::test;
using Catch::Contains;

namespace {

double numbers_in(const std::string& column, int row) {
  const double a = row * 7 % 13, b = row * 5 % 11 + 0.5;
  return column == "a" ? a : column == "b" ? b : 3 * a - 2 * b + 1;
}

/// Rows with y = 3 a - 2 b + 1, with these columns.
std::string linear_table(const std::vector<std::string>& columns, int count = 150) {
  std::string text;
  for (int row = -1; row < count; ++row)
    for (const std::string& column : columns) {
      text += row < 0 ? column : std::to_string(numbers_in(column, row));
      text += &column == &columns.back() ? '\n' : ',';
    }
  return text;
}

std::vector<Json> lines_of(const Trained& printed) {
  std::vector<Json> lines;
  std::istringstream all{printed.written + printed.result.dump()};
  for (std::string line; std::getline(all, line);) lines.push_back(Json::parse(line));
  return lines;
}

const Arguments regression{"--task", "regression", "--scale", "standard",       "--label-column",
                           "y",      "--hidden",   "16",      "--global-batch", "32"};
const Arguments quietly{"--quiet"};

}  // namespace

TEST_CASE("a regression learns a plane, with the same bits on any number of ranks and through a resume") {
  const QuietLog quiet;
  const TemporaryDirectory folder;
  const std::string first = folder.write("first.csv", linear_table({"a", "y", "b"})),
                    other = folder.write("other.csv", linear_table({"b", "a", "y"})),
                    bare = folder.write("bare.csv", linear_table({"b", "a"})), checkpoints = folder.path() / "run",
                    weights = folder.path() / "weights";
  const Arguments training = quietly + Arguments{"--data", first, "--steps", "120", "--export", weights};
  const Trained one = train_simulated(
      1, training + regression + Arguments{"--checkpoint-dir", checkpoints, "--checkpoint-every", "60"});
  CHECK(one.result["eval_r2"] > 0.99);
  CHECK(one.result["eval_mean_absolute_error"] < 1);
  CHECK_FALSE(one.result.contains("eval_accuracy"));
  check_same(one, train_simulated(2, training + regression + Arguments{"--data-memory", "1"}));
  // What is of the model and its data, the checkpoint says.
  const Arguments from_60{"--resume", checkpoints + "/step-60"}, from_120{"--resume", checkpoints + "/step-120"};
  const Arguments same_training{"--data", other, "--steps", "120", "--global-batch", "32"};
  CHECK(train_simulated(4, quietly + same_training + from_60).digest() == one.digest());
  const Json evaluated = train_simulated(4, quietly + Arguments{"--data", other, "--eval-only"} + from_120).result;
  for (const char* const key : {"eval_loss", "eval_r2", "eval_mean_absolute_error"})
    CHECK(evaluated[key] == one.result[key]);

  const Arguments prediction{"--predict", bare, "--init-from", weights};
  const std::vector<Json> predicted = lines_of(train_simulated(1, quietly + prediction));
  REQUIRE(predicted.size() == 150);
  for (int row = 0; row < 150; ++row) {
    CHECK(keys_of(predicted[static_cast<std::size_t>(row)]) == std::vector<std::string>{"index", "value"});
    CHECK(std::abs(predicted[static_cast<std::size_t>(row)]["value"].get<double>() - numbers_in("y", row)) < 4);
  }
  CHECK(lines_of(train_simulated(4, quietly + prediction)) == predicted);
}

TEST_CASE("options that contradict the task or the scale of weights are refused by name, and those of other tasks") {
  const QuietLog quiet;
  const TemporaryDirectory folder;
  const std::string data = folder.write("x.csv", linear_table({"a", "b", "y"}, 40)),
                    weights = folder.path() / "weights";
  const Arguments one_step = quietly + Arguments{"--data", data, "--steps", "1"};
  (void)train_simulated(1, one_step + regression + Arguments{"--export", weights});
  const Arguments from{"--init-from", weights};
  const Arguments evaluation = quietly + Arguments{"--data", data, "--eval-only"} + from;
  check_all_refused(
      {{evaluation + Arguments{"--task", "classes"},
        {"--task classes: contradicts " + weights + ", which has --task regression; expected the same, or no"}},
       {evaluation + Arguments{"--scale", "none"}, {"--scale none: contradicts " + weights}},
       {one_step + from + Arguments{"--scale", "none"}, {"--scale none: contradicts " + weights}},
       {evaluation + Arguments{"--classes", "3"}, {"--classes: expected only with --task classes"}},
       {quietly + Arguments{"--predict", data, "--top", "2"} + from, {"--top: expected only with --task classes"}},
       {one_step + regression + Arguments{"--classes", "3"}, {"--classes: expected only with --task classes"}}},
      [](const Arguments& arguments) { (void)train_simulated(2, arguments); });
  for (const char* const model : {"convnet", "gpt"})
    for (const Arguments& option : {Arguments{"--task", "regression"}, Arguments{"--scale", "standard"}})
      CHECK_THROWS_WITH(parse(Arguments{"--data", data, "--model", model} + option),
                        option.front() + ": expected only with --model mlp");
}

TEST_CASE("a training that diverges on columns of very different sizes names them, and scaled columns do not") {
  const QuietLog quiet;
  const TemporaryDirectory folder;
  std::string rows = "a,b,label\n";
  for (int row = 0; row < 60; ++row)
    rows += std::to_string(row * 1e18) + "," + std::to_string(row % 7) + "," + std::to_string(row % 2) + "\n";
  const Arguments arguments =
      quietly + Arguments{"--data", folder.write("x.csv", rows), "--steps", "20", "--hidden", "8"};
  CHECK_THROWS_AS(train_simulated(2, arguments), DivergenceError);
  CHECK_THROWS_WITH(train_simulated(2, arguments),
                    Contains("clipped norm may help; the columns \"a\" (up to 5.8e+19) and \"b\" (up to 6) differ by "
                             "more than a factor of 1000: --scale standard may help"));
  CHECK(train_simulated(2, arguments + Arguments{"--scale", "standard"}).result["eval_loss"] < 2);
}
