// Where two runs begin to differ, by their ledgers.
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include <lockstep/core/base/error.hpp>

#include "apps/lockstep-bisect/difference.hpp"

using namespace lockstep;
using namespace lockstep::bisect;

namespace {

Ledger::Entry of_step(std::int64_t step, std::uint64_t shards) {
  return {.step = step, .samples = 1, .shards = shards, .loss = 2};
}

Ledger::Entry of_weights(std::int64_t step, std::uint64_t weights) {
  return {.step = step, .weights = weights};
}

StepDigests digests(std::int64_t step, std::vector<std::uint64_t> of_shards, double loss = 1) {
  return {step, loss, {"samples", "gradient of 'w'", "loss"}, std::move(of_shards)};
}

}  // namespace

TEST_CASE("ledgers differ first where a step or its weights do, among the entries that both have") {
  const Ledger one{.entries = {of_step(10, 1), of_step(20, 2), of_weights(20, 7), of_step(30, 3)}};
  CHECK_FALSE(first_difference(one, one));
  const Ledger fewer{.entries = {of_step(20, 2)}};
  CHECK_FALSE(first_difference(one, fewer));
  const auto later = first_difference(one, {.entries = {of_step(10, 1), of_step(20, 2), of_step(30, 4)}});
  REQUIRE(later);
  CHECK(later->same == 20);
  CHECK(later->differs == 30);
  const auto weights =
      first_difference(one, {.entries = {of_step(10, 1), of_step(20, 2), of_weights(20, 8), of_step(30, 3)}});
  REQUIRE(weights);
  CHECK(weights->same == 10);
  CHECK(weights->differs == 20);
  CHECK(first_difference({.entries = {of_step(10, 1)}}, {.entries = {of_step(10, 5)}})->same == 0);
  CHECK_THROWS_AS(first_difference(one, {.entries = {of_step(15, 2)}}), ConfigError);
  CHECK(first_difference({.entries = {of_weights(0, 1), of_step(1, 1)}}, {.entries = {of_weights(0, 2), of_step(1, 1)}})
            ->differs == 0);
}

TEST_CASE("in the first step that differs, samples are named before what follows from them") {
  const std::vector<StepDigests> one{digests(1, {1, 2, 3, 4, 5, 6}), digests(2, {1, 2, 3, 4, 5, 6})};
  CHECK(first_difference(one, one).empty());
  CHECK(first_difference(one, {one[0], digests(2, {1, 9, 3, 4, 5, 6})}) == "step 2: gradient of 'w' of shard 0");
  CHECK(first_difference(one, {one[0], digests(2, {1, 9, 3, 8, 5, 6})}) == "step 2: samples of shard 1");
  CHECK(first_difference(one, {digests(1, {1, 2, 3, 4, 5, 7}), digests(2, {1, 9, 3, 4, 5, 6})}) ==
        "step 1: loss of shard 1");
  CHECK(first_difference(one, {digests(2, {1, 2, 3, 4, 5, 6}, 3)}) == "step 2: the sum of the losses");
  CHECK(first_difference(one, {digests(1, {1, 2, 3})}) == "step 1: models or numbers of shards differ");
}
