// The convnet end to end: the same bytes on any number of ranks, with everything that draws or measures on. Each of its
// options by itself is in training_options.cpp.
#include <catch2/catch.hpp>

#include "support/training_job.hpp"

using namespace lockstep::test;

namespace {

const Arguments convnet{"--model", "convnet", "--learning-rate", "0.01"};

}  // namespace

TEST_CASE("1 and 8 ranks end in the same bytes with the default convnet", "[extended]") {
  // 61 samples do not divide among 8 shards.
  check_same_on({1, 8}, convnet + Arguments{"--steps", "3", "--global-batch", "61"});
}

TEST_CASE("1, 2 and 4 ranks end in the same bytes with everything on, and shards without samples") {
  check_same_on({1, 2, 4}, convnet + Arguments{"--batch-norm", "--dropout", "0.5", "--optimizer", "adamw",
                                               "--clip-norm", "0.5", "--weight-decay", "0.01", "--steps", "4",
                                               "--global-batch", "5", "--eval-every", "3", "--eval-samples", "101"});
}

TEST_CASE("the convnet learns, and its moving averages serve for evaluation") {
  const Trained trained = train(2, {"--model", "convnet", "--batch-norm", "--dropout", "0.25", "--optimizer", "adamw",
                                    "--global-batch", "64", "--steps", "50", "--eval-samples", "500"});
  CHECK(trained.result["model"] == "convnet");
  CHECK(trained.result["eval_accuracy"].get<double>() > 0.6);  // chance is 0.1
}
