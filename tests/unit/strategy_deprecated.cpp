// Forms of calls that the next release no longer has: they compile, and do what the new ones do.
#include <vector>

#include <catch2/catch.hpp>

#include <lockstep/sync/strategy/strategy.hpp>

#include "strategy_support.hpp"
#include "sync/strategy/inside.hpp"

using namespace lockstep;
using namespace lockstep::test;

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

namespace {

/// Whether a call takes these without args.
template <class... T>
concept RunsWith =
    requires(Strategy& strategy, void (*fn)(ReplicaContext&, T...), T... values) { strategy.run(fn, values...); };
template <class... T>
concept UpdatesNonSlotWith = requires(StrategyExtended& extended, const Variable& variable, void (*fn)(T...),
                                      T... values) { extended.update_non_slot({variable}, fn, values...); };

}  // namespace

TEST_CASE("arguments may still come without args, and group still synchronizes") {
  TwoStrategies f;
  Strategy& strategy = f.strategy;
  StrategyExtended& extended = strategy.extended();
  const MirroredVariable w = strategy.create_variable({.name = "w"}, [] { return Tensor::scalar(1.F); });
  strategy.seal();
  const auto add = [](ReplicaContext&, int a, const std::vector<int>& b) { return a + b.front(); };
  CHECK(strategy.run(add, PerReplica<int>{1}, std::vector{2}).local() == 3);
  CHECK(strategy.run([](ReplicaContext&, int a) { return a; }, 4).local() == 4);
  const auto scaled = [](const Variable& variable, float by) { return by * variable.local().item<float>(); };
  CHECK(extended.update(w, scaled, strategy.same_on_all(5.F)) == 5);
  CHECK(extended.update_non_slot(
            {w}, [](int a, int b) { return a - b; }, 9, 3) == 6);
  CHECK(extended
            .map(
                std::vector{1, 2}, [](int item, int more) { return item + more; }, 5)
            .local()
            .values() == std::vector{6, 7});
  CHECK(strategy.group(PerReplica<int>{8}) == 8);
  strategy.group(1, 2);
}

TEST_CASE("the place of a call only follows args: without them it would be taken for an argument") {
  STATIC_REQUIRE(RunsWith<int>);
  STATIC_REQUIRE_FALSE(RunsWith<Here>);
  STATIC_REQUIRE_FALSE(RunsWith<int, Here>);
  STATIC_REQUIRE(UpdatesNonSlotWith<int>);
  STATIC_REQUIRE_FALSE(UpdatesNonSlotWith<Here>);
  STATIC_REQUIRE_FALSE(UpdatesNonSlotWith<int, Here>);
}

#pragma GCC diagnostic pop
