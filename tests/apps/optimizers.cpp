// Optimizers with everything on: the result is a function of the options, not of the number of ranks. Each option by
// itself, and with every optimizer, is in training_options.cpp.
#include <catch2/catch.hpp>

#include "support/training_job.hpp"

using namespace lockstep::test;

namespace {

const Arguments everything{"--weight-decay", "0.05", "--schedule",   "cosine", "--warmup-steps", "5",
                           "--clip-norm",    "0.7",  "--accumulate", "3"};

}  // namespace

TEST_CASE("1, 2, 4 and 8 ranks end in the same bytes with AdamW and everything on") {
  // Batches of 999: six whole ones and one of 6, which leaves two shards empty.
  check_same_on({1, 2, 4, 8}, everything + Arguments{"--optimizer", "adamw", "--steps", "16", "--global-batch", "999",
                                                     "--hidden", "40,20", "--eval-every", "7"});
}

TEST_CASE("1 and 4 ranks end in the same bytes with momentum and everything on") {
  check_same_on({1, 4}, everything + Arguments{"--optimizer", "momentum", "--steps", "8", "--global-batch", "50",
                                               "--hidden", "30"});
}

TEST_CASE("AdamW with a warm-up, a cosine and clipping learns") {
  const Trained trained =
      train(2, everything + Arguments{"--optimizer", "adamw", "--epochs", "3", "--learning-rate", "0.002"});
  CHECK(trained.result["eval_accuracy"].get<double>() > 0.8);
}
