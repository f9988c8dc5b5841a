// Every optimizer with everything on: the result is a function of the options, not of the number of ranks.
#include <algorithm>
#include <cmath>

#include <catch2/catch.hpp>

#include "support/training_job.hpp"

using namespace lockstep::test;

namespace {

const Arguments everything{"--weight-decay", "0.05", "--schedule",   "cosine", "--warmup-steps", "5",
                           "--clip-norm",    "0.7",  "--accumulate", "3"};

Arguments with(const std::string& optimizer) {
  return everything + Arguments{"--optimizer", optimizer};
}

}  // namespace

TEST_CASE("1, 2, 4 and 8 ranks end in the same bytes with every optimizer and everything on") {
  const std::string optimizer = GENERATE("sgd", "momentum", "adamw");
  // Batches of 999: six whole ones and one of 6, which leaves two shards empty.
  check_same_on({1, 2, 4, 8}, with(optimizer) + Arguments{"--steps", "16", "--global-batch", "999", "--hidden", "40,20",
                                                          "--eval-every", "7"});
}

TEST_CASE("1, 2 and 4 ranks end in the same bytes in f64, and with one shard a rank as with as many shards") {
  const std::string optimizer = GENERATE("momentum", "adamw");
  const Arguments run = with(optimizer) + Arguments{"--steps", "8", "--global-batch", "50", "--hidden", "30"};
  check_same_on({1, 2, 4}, run + Arguments{"--dtype", "f64", "--kernels", "reference"});
  CHECK(train(2, run + Arguments{"--shards", "ranks"}).digest() == train(1, run + Arguments{"--shards", "2"}).digest());
}

TEST_CASE("each of the options changes what is learned") {
  const Arguments run{"--steps", "6", "--hidden", "20", "--global-batch", "64"};
  std::vector<std::string> digests;
  for (const Arguments& change : std::vector<Arguments>{{},
                                                        {"--weight-decay", "0.01"},
                                                        {"--schedule", "cosine"},
                                                        {"--warmup-steps", "3"},
                                                        {"--clip-norm", "0.1"},
                                                        {"--accumulate", "2"},
                                                        {"--optimizer", "adamw"},
                                                        {"--optimizer", "adamw", "--weight-decay", "0.01"},
                                                        {"--optimizer", "adamw", "--learning-rate", "0.1"}})
    digests.push_back(train(1, run + change).digest());
  std::sort(digests.begin(), digests.end());
  CHECK(std::adjacent_find(digests.begin(), digests.end()) == digests.end());
}

TEST_CASE("what is off changes nothing") {
  const Arguments run{"--steps", "6", "--hidden", "20", "--global-batch", "64"};
  const std::string plain = train(1, run).digest();
  CHECK(train(1, run + Arguments{"--weight-decay", "0", "--schedule", "constant", "--warmup-steps", "0", "--accumulate",
                                 "1", "--clip-norm", "1e30", "--learning-rate", "0.1"})
            .digest() == plain);
  const std::string adamw = train(1, run + Arguments{"--optimizer", "adamw"}).digest();
  CHECK(train(1, run + Arguments{"--optimizer", "adamw", "--learning-rate", "0.001"}).digest() == adamw);
}

TEST_CASE("AdamW with a warm-up, a cosine and clipping learns") {
  const Trained trained = train(2, with("adamw") + Arguments{"--epochs", "3", "--learning-rate", "0.002"});
  CHECK(trained.result["eval_accuracy"].get<double>() > 0.8);
}
