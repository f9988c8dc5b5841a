// In what a training differs from the one that its checkpoint is of, and what would make them agree.
#include <catch2/catch.hpp>

#include "apps/lockstep-train/saved/training_difference.hpp"
#include "support/quiet_log.hpp"
#include "sync/checkpoint/program_state.hpp"

using namespace lockstep;
using namespace lockstep::test;
using Override = Resume::Override;

namespace {

TrainingFacts facts(const char* rate, const char* schedule, const char* decay_steps) {
  TrainingFacts facts{{"seed", "1"},           {"optimizer", "momentum 0.9, weight decay 0, clip norm none"},
                      {"learning rate", rate}, {"schedule", schedule},
                      {"warm-up", "2"},        {"shards", "8"}};
  if (*decay_steps) facts.emplace_back("decay steps", decay_steps);
  return facts;
}

TrainingFacts with(TrainingFacts facts, const char* name, const char* value) {
  for (auto& fact : facts)
    if (fact.first == name) fact.second = value;
  return facts;
}

}  // namespace

TEST_CASE("what may differ from a checkpoint is what is overridden, and the options that help are named") {
  const QuietLog quiet;
  const TrainingFacts there = facts("0.1", "cosine", "9");
  CHECK(training_difference(there, there, {}).empty());
  CHECK(training_difference(there, facts("0.2", "cosine", "9"), {}) ==
        "is of a training with learning rate 0.1, and this one has 0.2; --override learning-rate goes on with the new "
        "values");
  CHECK(training_difference(there, facts("0.2", "cosine", "9"), {Override::learning_rate}).empty());
  CHECK_THAT(training_difference(there, facts("0.2", "cosine", "12"), {Override::learning_rate}),
             Catch::EndsWith("decay steps 9, and this one has 12; --override steps goes on with the new values"));
  CHECK(training_difference(there, facts("0.1", "cosine", "12"), {Override::steps}).empty());
  // Another schedule has other steps, or none.
  CHECK(training_difference(there, facts("0.1", "constant", ""), {Override::schedule}).empty());
  CHECK(training_difference(facts("0.1", "constant", ""), there, {Override::schedule}).empty());
  CHECK_THAT(training_difference(there, facts("0.1", "constant", ""), {Override::steps}),
             Catch::Contains("; --override schedule goes on"));
  CHECK_THAT(training_difference(there, with(facts("0.2", "constant", ""), "warm-up", "1"), {}),
             Catch::Contains("; --override learning-rate --override schedule --override warmup-steps goes on"));
  // Where an override is not enough, none is named.
  CHECK_THAT(training_difference(there, with(facts("0.2", "cosine", "9"), "seed", "2"), {}),
             Catch::EndsWith("seed 1, and this one has 2"));
}

TEST_CASE("another number of shards is told with the numbers of ranks that go on") {
  const TrainingFacts there = facts("0.1", "constant", "");
  CHECK(training_difference(there, with(there, "shards", "3"), {}) ==
        "is of a training with shards 8, and this one has 3; expected --shards 8, on 1 to 8 ranks");
  CHECK_THAT(training_difference(with(there, "shards", "3"), there, {}),
             Catch::EndsWith("--shards 3, on 1 to 3 ranks"));
  CHECK_THAT(training_difference(with(there, "shards", "1"), there, {}), Catch::EndsWith("--shards 1, on 1 rank"));
  CHECK_THAT(training_difference(there, with(with(there, "shards", "3"), "seed", "2"), {}),
             Catch::EndsWith("seed 1, and this one has 2"));
}

TEST_CASE("the one fact of the optimizer that older checkpoints have is compared in parts") {
  const QuietLog quiet;
  const auto older = [](const char* optimizer) {
    return TrainingFacts{{"seed", "1"}, {"optimizer", optimizer}, {"shards", "8"}};
  };
  const TrainingFacts cosine =
      older("momentum 0.9, learning rate 0.1, cosine over 9 steps, warm-up 2, weight decay 0, clip norm none");
  const TrainingFacts constant = older("momentum 0.9, learning rate 0.1, warm-up 2, weight decay 0, clip norm none");
  CHECK(training_difference(cosine, facts("0.1", "cosine", "9"), {}).empty());
  CHECK(training_difference(constant, facts("0.1", "constant", ""), {}).empty());
  CHECK_FALSE(training_difference(constant, facts("0.1", "cosine", "9"), {}).empty());
  CHECK_THAT(training_difference(cosine, facts("0.1", "cosine", "8"), {}), Catch::Contains("decay steps 9, and"));
  CHECK(training_difference(cosine, facts("0.2", "cosine", "9"), {Override::learning_rate}).empty());
  CHECK_THAT(training_difference(older("sgd, learning rate 0.1, warm-up 2, weight decay 0, clip norm 1"),
                                 facts("0.1", "constant", ""), {}),
             Catch::Contains("optimizer sgd, weight decay 0, clip norm 1, and this one has momentum 0.9,"));
}
