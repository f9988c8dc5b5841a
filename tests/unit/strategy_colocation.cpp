// Creating variables beside others.
#include <memory>
#include <optional>
#include <string>

#include <catch2/catch.hpp>

#include <lockstep/core/base/error.hpp>
#include <lockstep/sync/strategy/strategy.hpp>
#include <lockstep/tf/extended/extended.hpp>

#include "core/control/meeting_point.hpp"
#include "strategy_support.hpp"
#include "sync/strategy/inside.hpp"

using namespace lockstep;
using lockstep::test::make;
using lockstep::test::TwoStrategies;

namespace {

template <class T>
concept HasNeighbours = requires(StrategyExtended& extended, const T& value) { extended.colocate_vars_with(value); };

}  // namespace

TEST_CASE("variables are created beside a variable of the same strategy, in every context of it", "[A-52]") {
  TwoStrategies f;
  const MirroredVariable variable = make(f.strategy, "w");
  const auto create = [&](const std::string& name) {
    const auto beside = StrategyExtended{f.strategy}.colocate_vars_with(variable);
    make(f.strategy, name);
    f.strategy.create_sync_on_read({.name = name + " counter"}, [] { return Tensor::scalar(1.f); });
  };
  {
    const Scope scope = f.strategy.scope();
    create("in a scope");
  }
  f.strategy.run([&](ReplicaContext& context) {
    create("in replica context");
    context.merge_call([&](Strategy&) { create("in a merge function"); });
  });
  CHECK(inside(f.strategy.store()).variables().size() == 7);
}

TEST_CASE("nothing but a variable has a place for others beside it", "[A-53]") {
  STATIC_REQUIRE(HasNeighbours<MirroredVariable>);
  STATIC_REQUIRE(HasNeighbours<SyncOnReadVariable>);
  STATIC_REQUIRE_FALSE(HasNeighbours<Tensor>);
  STATIC_REQUIRE_FALSE(HasNeighbours<Mirrored<Tensor>>);
  STATIC_REQUIRE_FALSE(HasNeighbours<std::string>);
}

TEST_CASE("colocate_vars_with refuses another strategy's variable by both names", "[A-52][A-54]") {
  TwoStrategies f;
  const MirroredVariable foreign = make(f.other, "v");
  std::optional<Strategy> short_lived{strategy_on(*f.group)};
  const MirroredVariable orphan = make(*short_lived, "o");
  short_lived.reset();
  const Scope scope = f.strategy.scope();
  const StrategyExtended extended{f.strategy};
  CHECK_THROWS_AS(extended.colocate_vars_with(foreign), InvalidArgument);
  const std::string told =
      "`colocate_vars_with` must only be passed a variable created in this `Strategy::scope()`, that of strategy 0, "
      "not ";
  CHECK_THROWS_WITH(extended.colocate_vars_with(foreign), told + "variable 'v' of strategy 1");
  CHECK_THROWS_WITH(extended.colocate_vars_with(orphan), told + "variable 'o' of a strategy that is gone");
  CHECK_NOTHROW(make(f.strategy, "w"));  // and leaves nothing behind
}

TEST_CASE("colocate_vars_with needs the scope of its strategy", "[A-11][A-52]") {
  TwoStrategies f;
  const MirroredVariable variable = make(f.strategy, "w");
  const StrategyExtended extended{f.strategy};
  CHECK_THROWS_AS(extended.colocate_vars_with(variable), ContextError);
  CHECK_THROWS_WITH(extended.colocate_vars_with(variable),
                    Catch::StartsWith("colocate_vars_with (strategy_colocation.cpp:") &&
                        Catch::EndsWith("): Need to be inside `Strategy::scope()` for strategy 0"));
  const Scope scope = f.other.scope();
  CHECK_THROWS_WITH(extended.colocate_vars_with(variable),
                    Catch::EndsWith("Mixing different Strategy objects: strategy 1 is not strategy 0"));
}

TEST_CASE("creation under colocate_vars_with looks at the scope again", "[A-52]") {
  TwoStrategies f;
  const MirroredVariable variable = make(f.strategy, "w");
  const auto guard_that_outlives_its_scope = [&] {
    const Scope scope = f.strategy.scope();
    return StrategyExtended{f.strategy}.colocate_vars_with(variable);
  };
  {
    const auto beside = guard_that_outlives_its_scope();
    const auto before = f.group->meeting().meetings();
    CHECK_THROWS_AS(make(f.strategy, "outside"), ContextError);
    CHECK_THROWS_WITH(make(f.strategy, "outside"),
                      Catch::EndsWith("Need to be inside `Strategy::scope()` for strategy 0"));
    {
      const Scope scope = f.other.scope();
      CHECK_THROWS_AS(make(f.other, "elsewhere"), ContextError);
      CHECK_THROWS_WITH(make(f.other, "elsewhere"),
                        "`colocate_vars_with`: strategy 1 cannot create one beside variable 'w' of strategy 0");
    }
    CHECK(f.group->meeting().meetings() == before);
    const Scope scope = f.strategy.scope();
    CHECK_NOTHROW(make(f.strategy, "inside"));
  }
  CHECK_NOTHROW(make(f.strategy, "outside"));
  CHECK(inside(f.other.store()).variables().empty());
}

TEST_CASE("the default strategy is current outside of every scope, and creates beside its variables there", "[H-22]") {
  TwoStrategies f;
  Strategy& strategy = Strategy::current();
  const MirroredVariable variable = make(strategy, "w");
  {
    const auto beside = StrategyExtended{strategy}.colocate_vars_with(variable);
    CHECK_NOTHROW(make(strategy, "v"));
    CHECK_THROWS_WITH(make(f.strategy, "v"), Catch::EndsWith("Need to be inside `Strategy::scope()` for strategy 0"));
  }
  const Scope scope = f.strategy.scope();
  CHECK_THROWS_WITH(StrategyExtended{strategy}.colocate_vars_with(variable),
                    Catch::EndsWith("Mixing different Strategy objects: strategy 0 is not the default strategy"));
}
