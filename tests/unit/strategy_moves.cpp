// A strategy that is moved: the same strategy, elsewhere.
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

#include <lockstep/core/base/error.hpp>
#include <lockstep/sync/strategy/strategy.hpp>
#include <lockstep/tf/extended/extended.hpp>

#include "strategy_support.hpp"

using namespace lockstep;
using lockstep::test::make;
using lockstep::test::TwoStrategies;

TEST_CASE("a moved strategy is the same strategy", "[A-19]") {
  TwoStrategies f;
  const MirroredVariable variable = make(f.strategy, "w");
  const StrategyExtended extended{f.strategy};
  CHECK(&extended.strategy() == &f.strategy);
  Strategy moved = std::move(f.strategy);
  CHECK(&extended.strategy() == &moved);
  moved.seal();
  CHECK(moved.name() == "strategy 0");
  CHECK(StrategyExtended{moved}.variable_created_in_scope(variable));
  CHECK(&moved.run([](ReplicaContext& context) { return &context.strategy(); }).local()->store() == &moved.store());
  CHECK(moved.reduce(ReduceOp::sum, PerReplica<int>{1}) == 1);
}

TEST_CASE("the contexts that are open follow a strategy that is moved") {
  TwoStrategies f;
  const MirroredVariable variable = make(f.strategy, "w");
  std::optional<Strategy> in_run, in_merge, in_update;
  const Scope scope = f.strategy.scope();
  Strategy in_scope = std::move(f.strategy);
  CHECK(&Strategy::current() == &in_scope);
  CHECK_THROWS_WITH(f.other.scope(),
                    Catch::EndsWith("Mixing different Strategy objects: strategy 0 is not strategy 1"));
  const int sum = in_scope
                      .run([&](ReplicaContext& context) {
                        in_run.emplace(std::move(in_scope));
                        CHECK(&Strategy::current() == &*in_run);
                        CHECK(&context.strategy() == &*in_run);
                        context.merge_call([&](Strategy& merged) {
                          in_merge.emplace(std::move(merged));
                          CHECK(&Strategy::current() == &*in_merge);
                          CHECK(in_merge->reduce(ReduceOp::sum, PerReplica<int>{2}) == 2);
                        });
                        CHECK(&context.strategy() == &*in_merge);
                        return context.all_reduce(ReduceOp::sum, 3);
                      })
                      .local();
  CHECK(sum == 3);
  StrategyExtended{*in_merge}.update(variable, [&](const Variable& component) {
    in_update.emplace(std::move(*in_merge));
    CHECK(&Strategy::current() == &*in_update);
    component.assign(Tensor::scalar(4.f));
  });
  CHECK(variable.local().to_vector<float>() == std::vector<float>{4});
  CHECK(&Strategy::current() == &*in_update);
}
