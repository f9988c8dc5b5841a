// Warm-up and cosine decay.
#include <cmath>
#include <limits>

#include <catch2/catch.hpp>

#include <lockstep/core/base/error.hpp>
#include <lockstep/sync/optim/learning_rate.hpp>

#include "not_finite.hpp"

using namespace lockstep;
using lockstep::test::infinity;
using lockstep::test::nan_value;

TEST_CASE("a number is the learning rate of every step") {
  const LearningRate rate = 0.3;
  for (const std::int64_t step : {std::int64_t{0}, std::int64_t{1}, std::numeric_limits<std::int64_t>::max()})
    CHECK(rate.at(step) == 0.3);
}

TEST_CASE("a warm-up rises in equal parts, and the step behind it is the first at the peak") {
  const LearningRate rate{{.peak = 2, .warmup_steps = 4}};
  for (int step = 0; step < 4; ++step) CHECK(rate.at(step) == Approx(2 * (step + 1) / 5.).epsilon(1e-15));
  for (const int step : {4, 5, 1000}) CHECK(rate.at(step) == 2);
  CHECK(LearningRate{{.peak = 2, .warmup_steps = 1}}.at(0) == 1);
}

TEST_CASE("a cosine falls from the peak behind the warm-up to its end, and stays there") {
  for (const double last : {0., 0.25}) {
    const LearningRate rate{{.peak = 1.25, .warmup_steps = 4, .decay_steps = 12, .last = last}};
    // At the angles of 0, 45, 90 and 135 degrees.
    const double height = 1.25 - last;
    CHECK(rate.at(3) == 1);
    CHECK(rate.at(4) == 1.25);
    CHECK(rate.at(6) == Approx(last + height * (2 + std::sqrt(2)) / 4).epsilon(1e-15));
    CHECK(rate.at(8) == Approx(last + height / 2).epsilon(1e-15));
    CHECK(rate.at(10) == Approx(last + height * (2 - std::sqrt(2)) / 4).epsilon(1e-15));
    CHECK(rate.at(11) > last);
    for (const int step : {12, 13, 1000000}) CHECK(rate.at(step) == last);
    for (int step = 4; step < 12; ++step) CHECK(rate.at(step + 1) < rate.at(step));
  }
  CHECK(LearningRate{{.peak = 3, .decay_steps = 1}}.at(0) == 3);
  CHECK(LearningRate{{.peak = 3, .decay_steps = 8, .last = 3}}.at(5) == 3);
}

TEST_CASE("learning rates that cannot be are refused") {
  for (const double peak : {0., -0.1, nan_value, infinity, -infinity}) {
    CHECK_THROWS_WITH(LearningRate(peak),
                      Catch::StartsWith("the learning rate is ") && Catch::EndsWith("; expected a positive number"));
    CHECK_THROWS_AS(LearningRate(peak), InvalidArgument);
  }
  for (const double last : {-0.1, 1.5, nan_value})
    CHECK_THROWS_WITH(LearningRate({.peak = 1, .decay_steps = 5, .last = last}),
                      Catch::Contains("decays from 1 to ") && Catch::EndsWith("; expected a number from 0 to 1"));
  CHECK_THROWS_WITH(LearningRate({.peak = 1, .warmup_steps = -1}), "warm-up steps: -1; expected 0 or more");
  CHECK_THROWS_WITH(LearningRate({.peak = 1, .warmup_steps = 5, .decay_steps = 5}),
                    "warm-up steps: 5 of 5; expected fewer than there are");
  CHECK_THROWS_AS(LearningRate({.peak = 1, .decay_steps = 0}), InvalidArgument);
  CHECK_THROWS_AS(LearningRate(1.).at(-1), InvalidArgument);
}
