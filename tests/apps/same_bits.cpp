// The result is a function of the options, not of the number of ranks: to the last bit, and to rounding for another
// number of shards. Here over MPI; with every model and option on simulated ranks in training_options.cpp.
#include <catch2/catch.hpp>

#include "support/training_job.hpp"

using namespace lockstep::test;

TEST_CASE("1, 2, 3, 5 and 8 ranks end in the same bytes with the default model") {
  check_same_on({1, 2, 3, 5, 8}, {"--steps", "4"});
}

TEST_CASE("12 ranks end in the same bytes as 1 with 16 shards") {
  check_same_on({1, 12}, {"--steps", "3", "--shards", "16", "--hidden", "40"});
}

TEST_CASE("6 and 7 ranks of up to three subtrees end in the same bytes as 1 with 32 shards") {
  check_same_on({1, 6, 7}, {"--steps", "2", "--shards", "32", "--hidden", "40"});
}

TEST_CASE("1, 3 and 4 ranks end in the same bytes with batches that eight does not divide") {
  // One shard is empty, and of 4 ranks one has a single sample.
  check_same_on({1, 3, 4}, {"--steps", "10", "--global-batch", "7"});
}

TEST_CASE("1 and 8 ranks end in the same bytes with sgd, other layers, and shards of two sizes") {
  check_same_on({1, 8}, {"--steps", "10", "--global-batch", "250", "--optimizer", "sgd", "--learning-rate", "0.3",
                         "--hidden", "33,7,100", "--seed", "18446744073709551615"});
}

TEST_CASE("1 and 4 ranks end in the same bytes with a single sample a step", "[extended]") {
  check_same_on({1, 4}, {"--steps", "5", "--global-batch", "1", "--hidden", "50"});
}

TEST_CASE("1 and 4 ranks end in the same bytes when steps run on over epochs with a rest in each", "[extended]") {
  // Batches of 999: six whole ones and one of 6.
  check_same_on({1, 4}, {"--steps", "16", "--global-batch", "999", "--hidden", "40", "--eval-every", "5"});
}

TEST_CASE("the reference kernels end in the same bytes on 1 and 4 ranks too, in f64") {
  check_same_on(
      {1, 4}, {"--steps", "10", "--hidden", "30", "--global-batch", "50", "--kernels", "reference", "--dtype", "f64"});
}

TEST_CASE("ranks of two and four threads end in the same bytes as those of one") {
  // Of 8 shards one is empty.
  const Arguments arguments{"--steps", "10", "--hidden", "40", "--global-batch", "7"};
  const auto digest = [&](int ranks, const char* threads) {
    return train(ranks, arguments + Arguments{"--threads", threads}).digest();
  };
  const std::string expected = digest(1, "1");
  CHECK(digest(1, "4") == expected);
  CHECK(digest(2, "2") == expected);
}

TEST_CASE("loading ahead does not touch the bytes") {
  const Arguments arguments{"--steps", "10", "--hidden", "40"};
  CHECK(train(2, arguments + Arguments{"--prefetch", "3"}).digest() == train(2, arguments).digest());
}

TEST_CASE("3 shards are close to 8 after a few steps", "[extended]") {
  const Arguments arguments{"--steps", "10"};
  const Trained three = train(3, arguments + Arguments{"--shards", "ranks"}), one = train(1, arguments);
  CHECK(three.result["shards"] == 3);
  REQUIRE(three.metrics.size() == one.metrics.size());
  for (std::size_t i = 0; i < one.metrics.size(); ++i)
    CHECK(three.metrics[i]["loss"].get<double>() == Approx(one.metrics[i]["loss"].get<double>()).epsilon(1e-5));
}
