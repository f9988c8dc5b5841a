// Training on images in colour, arrays and CSV, on simulated ranks.
#include <cmath>
#include <fstream>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include <lockstep/core/base/error.hpp>

#include "apps/lockstep-train/trainer.hpp"
#include "apps/simulated_training.hpp"
#include "support/colour_images.hpp"
#include "support/labelled_files.hpp"
#include "support/quiet_log.hpp"

using namespace lockstep;
using namespace lockstep::test;
using Catch::Contains;

namespace {

const Arguments convnet{"--model", "convnet",        "--batch-norm", "--optimizer",
                        "adamw",   "--global-batch", "32",           "--quiet"};

const Arguments mlp{"--hidden", "16", "--global-batch", "32", "--quiet"};

/// Rows whose class is the larger of two numbers.
std::string rows(int count, const std::string& label) {
  std::string text = "x," + label + ",y\n";
  for (int i = 0; i < count; ++i) {
    const int x = i * 7 % 13, y = i * 5 % 11;
    text += std::to_string(x) + "," + std::to_string(x > y) + "," + std::to_string(y) + ".5\n";
  }
  return text;
}

/// The same rows with columns in this order, of x, y and answer, whose labels are names.
std::string table(const std::vector<std::string>& columns, int count = 200) {
  std::string text;
  for (int i = -1; i < count; ++i) {
    const int x = i * 7 % 13, y = i * 5 % 11;
    for (const std::string& column : columns) {
      if (&column != &columns.front()) text += ',';
      text += i < 0           ? column
              : column == "x" ? std::to_string(x)
              : column == "y" ? std::to_string(y) + ".5"
                              : std::string{x > y ? "wide" : "high"};
    }
    text += '\n';
  }
  return text;
}

}  // namespace

TEST_CASE("a model finds the columns of its table by their names, and names classes as the table does") {
  const QuietLog quiet;
  const TemporaryDirectory folder;
  const std::string first = folder.write("first.csv", table({"x", "answer", "y"})),
                    other = folder.write("other.csv", table({"y", "x", "answer"})),
                    bare = folder.write("bare.csv", table({"y", "x"}));
  const Arguments shaped = mlp + Arguments{"--label-column", "answer", "--learning-rate", "0.01"};
  const Arguments saved{"--checkpoint-dir", folder.path() / "run", "--checkpoint-every", "20"};
  const Trained trained = train_simulated(2, shaped + Arguments{"--data", first, "--steps", "40"} + saved);
  const Arguments quietly{"--quiet"}, from{"--resume", folder.path() / "run" / "step-40"};
  const auto evaluated = [&](const std::string& data) {
    return train_simulated(1, quietly + from + Arguments{"--eval-only", "--data", data}).result["eval_loss"];
  };
  CHECK(evaluated(first) == trained.result["eval_loss"]);
  CHECK(evaluated(other) == trained.result["eval_loss"]);
  const auto predicted = [&](const std::string& file) {
    const Trained lines = train_simulated(2, quietly + from + Arguments{"--predict", file});
    return lines.written + lines.result.dump();
  };
  const std::string lines = predicted(first);
  CHECK_THAT(lines, Contains("\"label\":\"wide\"") && Contains("\"label\":\"high\""));
  CHECK(predicted(other) == lines);
  CHECK(predicted(bare) == lines);
  // A training goes on too, and takes from the checkpoint which column has the labels.
  const Arguments begun{"--resume", folder.path() / "run" / "step-20", "--global-batch", "32", "--learning-rate",
                        "0.01"};
  CHECK(train_simulated(4, quietly + begun + Arguments{"--data", other, "--steps", "40"}).digest() == trained.digest());
  CHECK_THROWS_WITH(evaluated(folder.write("surplus.csv", table({"x", "y", "answer", "z"}))), Contains("\"z\""));
  CHECK_THROWS_WITH(evaluated(folder.write("missing.csv", table({"x", "answer"}))), Contains("\"y\""));
  CHECK_THROWS_WITH(
      train_simulated(1, quietly + from + Arguments{"--eval-only", "--data", first, "--label-column", "x"}),
      Contains("--label-column x: contradicts ") && Contains("which has --label-column answer"));
}

TEST_CASE("the convnet learns colours, with the same bits on any number of ranks and however much memory there is") {
  const QuietLog quiet;
  const ColourImages images;
  const Arguments arguments = convnet + Arguments{"--data", images.path(), "--steps"};
  const Trained learnt = train_simulated(1, arguments + Arguments{"15"});
  CHECK(learnt.metrics.front()["loss"].get<double>() > 2);
  CHECK(learnt.result["train_loss"].get<double>() < 1.5);
  CHECK(learnt.result["eval_accuracy"].get<double>() > 0.8);  // chance is 0.1, and 0.4 is the most without colours
  const Arguments short_run = arguments + Arguments{"3", "--eval-samples", "8"};
  const Trained one = train_simulated(1, short_run);
  check_same(one, train_simulated(2, short_run));
  check_same(one, train_simulated(4, short_run + Arguments{"--data-memory", "100K"}));
}

TEST_CASE("augmented images have the same bits on any number of ranks and through a resume, and others without it") {
  const QuietLog quiet;
  const ColourImages images;
  const Arguments arguments = mlp + Arguments{"--data", images.path(), "--steps", "12"};
  const Arguments augmented = arguments + Arguments{"--augment", "flip,crop"};
  const Trained one = train_simulated(1, augmented);
  for (const int ranks : {2, 4}) check_same(one, train_simulated(ranks, augmented));
  CHECK(train_simulated(1, arguments).digest() != one.digest());
  CHECK(train_simulated(1, arguments + Arguments{"--augment", "flip"}).digest() != one.digest());

  const TemporaryDirectory folder;
  const Arguments saved{"--checkpoint-dir", folder.path() / "run"};
  (void)train_simulated(2, mlp + Arguments{"--data", images.path(), "--steps", "7", "--augment", "flip,crop"} + saved);
  const Arguments resumed = saved + Arguments{"--resume", "auto"};
  CHECK_THROWS_WITH(train_simulated(1, arguments + resumed),
                    Contains("is of a training with augmentation flip,crop, and this one has none"));
  CHECK(train_simulated(4, augmented + resumed).digest() == one.digest());
  CHECK_THROWS_WITH(parse(arguments + Arguments{"--augment", "flop"}),
                    "--augment flop: expected flip, crop or flip,crop");
}

TEST_CASE("ranks that augment images in different ways, or compute with other kernels, are refused") {
  const QuietLog quiet;
  const ColourImages images;
  const auto trains = [&](const Arguments& on_first, const Arguments& on_second) {
    sim::run({.ranks = 2, .report = [](std::string_view) {}}, [&](Strategy& strategy, int rank) {
      const Arguments arguments = mlp + Arguments{"--data", images.path(), "--steps", "1"};
      (void)Trainer{strategy, "cpu", parse(arguments + (rank == 0 ? on_first : on_second)).training}.train();
    });
  };
  const Arguments flip{"--augment", "flip"}, both{"--augment", "flip,crop"};
  CHECK_NOTHROW(trains(both, both));
  CHECK_THROWS_AS(trains(flip, both), MismatchError);
  CHECK_THROWS_AS(trains(flip, {}), MismatchError);
  if (ops::make_kernels(ops::Kernels::Choice::automatic)->name() != "reference")
    CHECK_THROWS_AS(trains({"--kernels", "reference"}, {}), MismatchError);
}

TEST_CASE("arrays and CSV train an mlp with the classes that they have, and no convnet") {
  const QuietLog quiet;
  const TemporaryDirectory folder;
  const std::string csv = folder.write("points.csv", rows(300, "label"));
  const Arguments arguments = mlp + Arguments{"--data", csv, "--epochs", "20", "--learning-rate", "0.001"};
  const Trained one = train_simulated(1, arguments);
  CHECK(one.result["eval_accuracy"].get<double>() > 0.9);
  CHECK(one.result["samples"] == 20 * 271);
  check_same(one, train_simulated(4, arguments + Arguments{"--data-memory", "1K"}));
  const Arguments halved = mlp + Arguments{"--data", csv, "--epochs", "1", "--test-fraction", "0.5"};
  CHECK(train_simulated(1, halved).result["samples"] == 150);
  const std::string other = folder.write("other.csv", rows(300, "wide"));
  const Arguments by_column = mlp + Arguments{"--data", other, "--epochs", "20", "--learning-rate", "0.001"};
  CHECK(train_simulated(2, by_column + Arguments{"--label-column", "wide"}).digest() == one.digest());
  CHECK_THROWS_WITH(train_simulated(1, by_column),
                    Contains("other.csv: is not a data set") || Contains("has no column \"label\""));
  CHECK_THROWS_WITH(train_simulated(1, mlp + Arguments{"--data", "/dev/null"}),
                    Catch::EndsWith("; it is a device, not a regular file"));
  const std::string refused = "the samples of " + csv + " are rows of 2 numbers, not images; expected ";
  CHECK_THROWS_WITH(train_simulated(2, {"--model", "convnet", "--data", csv}),
                    "--model convnet: " + refused + "--model mlp");
  CHECK_THROWS_WITH(train_simulated(2, {"--data", csv, "--augment", "flip"}), "--augment: " + refused + "no --augment");

  // 7 classes, which the weights show.
  const std::string samples = npy<float>("<f4", "7, 6, 6", std::vector<float>(7 * 36, 0.5F)),
                    labels = npy<std::int16_t>("<i2", "7, 1", {0, 1, 2, 3, 4, 5, 6});
  for (const char* const part : {"train", "test"}) {
    folder.write(std::string{"x_"} + part + ".npy", samples);
    folder.write(std::string{"y_"} + part + ".npy", labels);
  }
  const Arguments on_arrays{"--model", "convnet", "--data", folder.path(), "--steps", "1", "--quiet"};
  CHECK(train_simulated(2, on_arrays + Arguments{"--classes", "7"}).digest() == train_simulated(1, on_arrays).digest());
  CHECK(train_simulated(1, on_arrays + Arguments{"--classes", "8"}).digest() != train_simulated(1, on_arrays).digest());
}

TEST_CASE("arrays and tables are predicted as they are evaluated, on any number of ranks") {
  const QuietLog quiet;
  const TemporaryDirectory folder;
  const std::string csv = folder.write("points.csv", rows(300, "label")), weights = folder.path() / "weights";
  const Arguments two_classes = mlp + Arguments{"--classes", "2"};
  (void)train_simulated(
      1, two_classes + Arguments{"--data", csv, "--epochs", "10", "--learning-rate", "0.001", "--export", weights});
  const auto predicted = [&](int ranks, const std::string& file) {
    const Trained trained = train_simulated(ranks, two_classes + Arguments{"--predict", file, "--init-from", weights,
                                                                           "--data-memory", ranks == 1 ? "1G" : "1"});
    return trained.written + trained.result.dump();
  };
  const std::string lines = predicted(1, csv);
  CHECK(std::ranges::count(lines, '\n') == 299);
  CHECK(predicted(2, csv) == lines);
  std::vector<double> numbers;
  for (int i = 0; i < 300; ++i) numbers.insert(numbers.end(), {i * 7 % 13 + 0.0, i * 5 % 11 + 0.5});
  CHECK(predicted(2, folder.write("points.npy", npy<double>("<f8", "300, 2", numbers))) == lines);
}

TEST_CASE("an evaluation that knows the classes needs the test set alone") {
  const QuietLog quiet;
  const TemporaryDirectory folder, tests;
  const std::string weights = folder.path() / "weights";
  folder.write("train.csv", rows(90, "label"));
  folder.write("test.csv", rows(40, "label"));
  tests.write("test.csv", rows(40, "label"));
  (void)train_simulated(1, mlp + Arguments{"--data", folder.path(), "--export", weights});
  const auto evaluated = [&](const TemporaryDirectory& data, const Arguments& more) {
    Json result =
        train_simulated(2, mlp + more + Arguments{"--eval-only", "--data", data.path(), "--init-from", weights}).result;
    result.erase("seconds");
    return result;
  };
  const Json whole = evaluated(folder, {});
  CHECK(whole["eval_samples"] == 40);
  CHECK(evaluated(tests, {"--classes", "2"}) == whole);
  CHECK(evaluated(tests, {}) == whole);  // the weights know them
}

TEST_CASE("a folder of images is no text") {
  const QuietLog quiet;
  const ColourImages images;
  CHECK_THROWS_WITH(train_simulated(2, {"--model", "gpt", "--data", images.path()}),
                    Contains(": is a folder of images, which train --model convnet"));
}
