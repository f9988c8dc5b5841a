// What is done with a trained model: evaluating it, without training, on simulated ranks.
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include <lockstep/base/error.hpp>

#include "apps/image_files.hpp"
#include "apps/simulated_training.hpp"
#include "support/quiet_log.hpp"

using namespace lockstep;
using namespace lockstep::test;

namespace {

/// Every file below `folder`, with its bytes.
std::map<std::string, std::string> contents_of(const std::filesystem::path& folder) {
  std::map<std::string, std::string> contents;
  for (const auto& entry : std::filesystem::recursive_directory_iterator{folder})
    if (entry.is_regular_file()) contents[entry.path()] = read_file(entry.path());
  return contents;
}

/// Requires that the evaluations of two runs have the same bits.
void check_same_evaluation(const Json& one, const Json& other) {
  for (const char* key : {"eval_loss", "eval_accuracy", "weights_digest"}) {
    INFO(key);
    CHECK(one.at(key) == other.at(key));
  }
}

}  // namespace

TEST_CASE("an evaluation alone finds what the training found, on any number of ranks, and writes nothing") {
  const QuietLog quiet;
  const ImageFiles images{{.train = 90, .test = 53, .rows = 8, .columns = 8}};
  const TemporaryDirectory folder;
  const std::filesystem::path checkpoints = folder.path() / "checkpoints";
  const Arguments model{"--data", images.path(), "--model", "convnet", "--batch-norm", "--quiet"};
  const Trained trained =
      train_simulated(2, model + Arguments{"--steps", "3", "--dropout", "0.3", "--global-batch", "16",
                                           "--checkpoint-dir", checkpoints, "--checkpoint-every", "2"});
  const auto before = contents_of(folder.path());
  const Arguments newest{"--eval-only", "--resume", "auto", "--checkpoint-dir", checkpoints};
  for (const int ranks : {1, 2, 4, 8}) {
    INFO(ranks << " ranks");
    // What shaped the training, dropout too, shapes no evaluation.
    const Json found = train_simulated(ranks, model + newest + Arguments{"--optimizer", "adamw"}).result;
    check_same_evaluation(trained.result, found);
    CHECK(found["steps"] == 3);
    CHECK(found["eval_samples"] == 53);
    CHECK(found["weights"] == (checkpoints / "step-3").string());
    CHECK_FALSE(found.contains("train_loss"));
  }
  const Json earlier =
      train_simulated(2, model + Arguments{"--eval-only", "--resume", checkpoints / "step-2", "--eval-samples", "20"})
          .result;
  CHECK(earlier["steps"] == 2);
  CHECK(earlier["eval_samples"] == 20);
  CHECK(earlier["weights_digest"] != trained.result["weights_digest"]);
  CHECK(contents_of(folder.path()) == before);

  CHECK_THROWS_WITH(train_simulated(2, Arguments{"--data", images.path(), "--quiet", "--model", "convnet"} + newest),
                    Catch::Contains("of a training with model convnet for 10 classes, batch norm"));
  CHECK_THROWS_WITH(train_simulated(2, model + Arguments{"--dtype", "f64"} + newest),
                    Catch::Contains("dtype f32, and this one has f64"));
  CHECK_THROWS_AS(train_simulated(2, model + Arguments{"--eval-only", "--resume", "auto", "--checkpoint-dir",
                                                       folder.path() / "nothing"}),
                  CheckpointError);
}

TEST_CASE("a gpt is evaluated on the same text, in bits, and writes the sample that it wrote after its training") {
  const QuietLog quiet;
  const TemporaryDirectory folder;
  const Arguments model{"--data",    folder.write("text", small_text(2000)),
                        "--model",   "gpt",
                        "--layers",  "1",
                        "--heads",   "2",
                        "--embed",   "16",
                        "--context", "16",
                        "--sample",  "20",
                        "--quiet"};
  const std::string checkpoints = folder.path() / "checkpoints";
  const Trained trained = train_simulated(1, model + Arguments{"--steps", "2", "--checkpoint-dir", checkpoints});
  const Trained found = train_simulated(4, model + Arguments{"--eval-only", "--resume", checkpoints + "/step-2"});
  check_same_evaluation(trained.result, found.result);
  CHECK(found.result["bits_per_byte"] == trained.result["bits_per_byte"]);
  CHECK(found.written == trained.written);
}
