// Where a training is, as text in its checkpoints.
#include <cmath>
#include <cstddef>
#include <limits>
#include <utility>

#include <catch2/catch.hpp>

#include <lockstep/core/base/error.hpp>
#include <lockstep/models/fit/fit.hpp>

#include "apps/lockstep-train/saved/checkpoint_observer.hpp"

using namespace lockstep;

TEST_CASE("the state of a training is the same when it was a text") {
  const Observer::State state{.steps = 123456789012345,
                              .recent = {{0.1, 256}, {-1e-300, 0}, {std::numeric_limits<double>::infinity(), 3}}};
  const Observer::State again = Observer::State::parse(state.to_text());
  CHECK(again.steps == state.steps);
  REQUIRE(again.recent.size() == 3);
  for (std::size_t i = 0; i < 3; ++i) {
    CHECK(again.recent[i].loss == state.recent[i].loss);
    CHECK(again.recent[i].weight == state.recent[i].weight);
  }
  CHECK(std::isnan(Observer::State::parse(Observer::State{.steps = 1, .recent = {{std::nan(""), 1}}}.to_text())
                       .recent.front()
                       .loss));
  CHECK(Observer::State::parse("7").recent.empty());
  for (const char* wrong : {"", "x", "1 2", "1 2 x", "1 2 3x", "1.5 2 3"})
    CHECK_THROWS_WITH(Observer::State::parse(wrong), Catch::Contains("not the state of a training"));
}

TEST_CASE("a resumed training goes on from its state, which is that of its step") {
  using enum FitOptions::OnDivergence;
  const auto state_of = [](CheckpointManager::State state, FitOptions::OnDivergence on_divergence = stop) {
    return fit_state_of({.step = 7, .state = std::move(state), .checkpoint = {}}, on_divergence);
  };
  CHECK(state_of({{"fit", "7 0.5 2"}}).recent.size() == 1);
  CHECK_THROWS_WITH(state_of({}), "has no state \"fit\" of its training");
  CHECK_THROWS_WITH(state_of({{"fit", "8 0.5 2"}}), "is of step 7, and its state of step 8");
  for (const char* wrong : {"seven", "-7", "7 0.5 -2", "7 0.5 nan"}) CHECK_THROWS_AS(state_of({{"fit", wrong}}), Error);
  CHECK_THROWS_WITH(state_of({{"fit", "7 nan 2"}}), "has a state of its training that has a step with the loss nan");
  CHECK(state_of({{"fit", "7 nan 2"}}, proceed).steps == 7);
}
