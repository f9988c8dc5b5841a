// The result is a function of the options, not of the number of ranks: to the last bit where the ranks divide the
// shards, to rounding elsewhere.
#include <cmath>

#include <catch2/catch.hpp>

#include "support/training_job.hpp"

using namespace lockstep::test;

namespace {

std::vector<double> losses(const Trained& trained) {
  std::vector<double> losses;
  for (const Json& line : trained.metrics) losses.push_back(line["loss"].get<double>());
  return losses;
}

/// The largest relative difference between the losses of two runs.
double distance(const Trained& one, const Trained& other) {
  const std::vector<double> left = losses(one), right = losses(other);
  REQUIRE(left.size() == right.size());
  double largest = 0;
  for (std::size_t i = 0; i < left.size(); ++i)
    largest = std::max(largest, std::abs(left[i] - right[i]) / std::abs(left[i]));
  return largest;
}

}  // namespace

TEST_CASE("1, 2, 4 and 8 ranks end in the same bytes with the default model") {
  check_same_on({1, 2, 4, 8}, {"--steps", "30"});
}

TEST_CASE("1, 2, 4 and 8 ranks end in the same bytes with batches that eight does not divide") {
  // 250 leaves shards of 31 and 32; 7 leaves one shard empty, and of 4 ranks one with a single sample.
  const std::string batch = GENERATE("250", "7");
  check_same_on({1, 2, 4, 8}, {"--steps", "20", "--global-batch", batch});
}

TEST_CASE("1, 2, 4 and 8 ranks end in the same bytes with sgd and other layers") {
  check_same_on({1, 2, 4, 8}, {"--steps", "20", "--optimizer", "sgd", "--learning-rate", "0.3", "--hidden", "33,7,100",
                               "--seed", "18446744073709551615"});
}

TEST_CASE("1, 2, 4 and 8 ranks end in the same bytes with a single sample a step") {
  check_same_on({1, 2, 4, 8}, {"--steps", "5", "--global-batch", "1", "--hidden", "50"});
}

TEST_CASE("1 and 4 ranks end in the same bytes when steps run on over epochs with a rest in each") {
  // Batches of 999: six whole ones and one of 6.
  check_same_on({1, 4}, {"--steps", "16", "--global-batch", "999", "--hidden", "40", "--eval-every", "5"});
}

TEST_CASE("1 and 8 ranks end in the same bytes with a batch larger than the data set") {
  const Trained trained = train(1, {"--epochs", "2", "--global-batch", "1000000000000", "--hidden", "16"});
  CHECK(trained.result["steps"] == 2);
  CHECK(trained.result["samples"] == 12000);
  check_same_on({1, 8}, {"--epochs", "2", "--global-batch", "9223372036854775807", "--hidden", "16"});
}

TEST_CASE("a chosen number of shards fixes the bytes as well") {
  check_same_on({1, 2, 4}, {"--steps", "10", "--hidden", "40", "--shards", "4"});
  check_same_on({1, 8}, {"--steps", "10", "--hidden", "40", "--shards", "16"});
}

TEST_CASE("--shards ranks is the same as as many shards as ranks") {
  const Arguments arguments{"--steps", "10", "--hidden", "40"};
  const Trained trained = train(2, arguments + Arguments{"--shards", "ranks"});
  CHECK(trained.result["shards"] == 2);
  CHECK(trained.digest() == train(1, arguments + Arguments{"--shards", "2"}).digest());
}

TEST_CASE("the reference kernels end in the same bytes on 1, 2 and 4 ranks too, in f32 and f64") {
  const std::string type = GENERATE("f32", "f64");
  check_same_on({1, 2, 4},
                {"--steps", "10", "--hidden", "30", "--global-batch", "50", "--kernels", "reference", "--dtype", type});
}

TEST_CASE("threads do not touch the bytes") {
  const Arguments arguments{"--steps", "10", "--hidden", "40"};
  CHECK(train(2, arguments + Arguments{"--threads", "2"}).digest() == train(2, arguments).digest());
}

TEST_CASE("3 ranks are close to 1 after a few steps") {
  const Arguments arguments{"--steps", "10"};
  const Trained three = train(3, arguments), one = train(1, arguments);
  CHECK(three.result["shards"] == 3);
  CHECK(distance(three, one) < 1e-5);
}

TEST_CASE("in f64 3 ranks are within 1e-9 of 1 after 50 steps") {
  const Arguments arguments{"--dtype",        "f64", "--kernels", "reference", "--steps",      "50",
                            "--global-batch", "100", "--hidden",  "32,32",     "--eval-every", "10"};
  const Trained three = train(3, arguments), one = train(1, arguments);
  const double apart = distance(three, one);
  CHECK(apart < 1e-9);
  // Another order of summation was taken, or this test proves nothing.
  CHECK(apart > 0);
}

TEST_CASE("the digest tells runs apart that differ in seed, learning rate, momentum or shards") {
  const Arguments arguments{"--steps", "3", "--hidden", "40"};
  std::vector<std::string> digests{train(1, arguments).digest()};
  for (const Arguments& change : std::vector<Arguments>{{"--seed", "2"},
                                                        {"--learning-rate", "0.11"},
                                                        {"--momentum", "0.8"},
                                                        {"--shards", "4"},
                                                        {"--optimizer", "sgd"},
                                                        {"--global-batch", "255"}})
    digests.push_back(train(1, arguments + change).digest());
  std::sort(digests.begin(), digests.end());
  CHECK(std::adjacent_find(digests.begin(), digests.end()) == digests.end());
}
