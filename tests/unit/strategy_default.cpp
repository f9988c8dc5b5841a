// The default strategy: what a program has outside of every scope. One replica, and the same calls as any other.
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

#include <lockstep/core/base/error.hpp>
#include <lockstep/sync/strategy/strategy.hpp>
#include <lockstep/tf/extended/extended.hpp>

#include "sync/group/local_group.hpp"
#include "sync/strategy/inside.hpp"

using namespace lockstep;

namespace {

Strategy make_strategy() {
  static const std::unique_ptr<ReplicaGroup> group = make_local_group();
  return strategy_on(*group);
}

void check_one_context_only() {
  CHECK((ReplicaContext::current() != nullptr) != Strategy::in_cross_replica_context());
}

}  // namespace

TEST_CASE("there is a replica context or a cross-replica context, and never both, wherever the program stands",
          "[A-2]") {
  Strategy strategy = make_strategy();
  const auto everywhere = [](Strategy& of) {
    check_one_context_only();
    {
      const Scope scope = of.scope();
      check_one_context_only();
      StrategyExtended{of}.update_non_slot({}, check_one_context_only);
    }
    of.run([](ReplicaContext& context) {
      check_one_context_only();
      context.merge_call([](Strategy& merged) {
        check_one_context_only();
        merged.run([](ReplicaContext&) { check_one_context_only(); });
      });
      check_one_context_only();
    });
    check_one_context_only();
  };
  everywhere(strategy);
  everywhere(Strategy::current());
  ReplicaContext::current()->merge_call([](Strategy&) { check_one_context_only(); });
}

TEST_CASE("the default strategy's values are their own containers", "[K-14]") {
  Strategy& strategy = Strategy::current();
  const MirroredVariable variable = strategy.create_variable({.name = "w"}, [] { return Tensor::scalar(1.f); });
  CHECK(&inside(StrategyExtended{strategy}.value_container(variable)).state() == &inside(variable).state());
  CHECK(StrategyExtended{strategy}.value_container(3) == 3);
}

TEST_CASE("outside of every scope there is a replica context, of one replica, and its methods work", "[A-4]") {
  CHECK_FALSE(Strategy::has_current());
  CHECK_FALSE(Strategy::in_cross_replica_context());
  REQUIRE(ReplicaContext::current() != nullptr);
  ReplicaContext& context = *ReplicaContext::current();
  CHECK(&context.strategy() == &Strategy::current());
  CHECK(context.replica_id_in_sync_group() == 0);
  CHECK(context.num_replicas_in_sync() == 1);
  CHECK(context.all_reduce(ReduceOp::mean, std::vector<double>{3, 4}) == std::vector<double>{3, 4});
  const int result = context.merge_call(
      [&](Strategy& merged, const PerReplica<int>& value) {
        CHECK(&merged == &context.strategy());
        CHECK(ReplicaContext::current() == nullptr);
        CHECK(Strategy::in_cross_replica_context());
        CHECK_FALSE(Strategy::has_current());
        CHECK_THROWS_WITH(context.replica_id_in_sync_group(),
                          Catch::Contains("): Need to be inside `Strategy::run()`"));
        return StrategyExtended{merged}.reduce_to(ReduceOp::sum, value);
      },
      args(41));
  CHECK(result == 41);
  CHECK_THROWS_WITH(context.merge_call([](Strategy&) { throw ContextError{"thrown"}; }), "thrown");
  CHECK(ReplicaContext::current() == &context);
}

TEST_CASE("the default strategy is no strategy that a program has chosen, not even in its own run", "[A-4]") {
  Strategy& strategy = Strategy::current();
  {
    const Scope scope = strategy.scope();
    CHECK_FALSE(Strategy::has_current());
    CHECK(Strategy::in_cross_replica_context());
    const Scope again = strategy.scope();
    CHECK_FALSE(Strategy::has_current());
  }
  strategy.run([&](ReplicaContext& context) {
    CHECK_FALSE(Strategy::has_current());
    CHECK_FALSE(Strategy::in_cross_replica_context());
    CHECK(ReplicaContext::current() == &context);
    context.merge_call([](Strategy&) { CHECK_FALSE(Strategy::has_current()); });
    // So any scope may begin there.
    Strategy other = make_strategy();
    const Scope scope = other.scope();
    CHECK(Strategy::has_current());
    CHECK(&Strategy::current() == &other);
  });
}

TEST_CASE("the default strategy and its replica context are made once a thread", "[A-5]") {
  const auto found = [] { return std::pair{&Strategy::current(), ReplicaContext::current()}; };
  const auto here = found();
  CHECK(found() == here);
  Strategy::current().run([](ReplicaContext&) {});
  {
    Strategy other = make_strategy();
    const Scope scope = other.scope();
  }
  CHECK(found() == here);
  auto there = here;
  bool stays = false;
  std::thread{[&] {
    there = found();
    stays = found() == there;
  }}.join();
  CHECK(stays);
  CHECK(there.first != here.first);
  CHECK(there.second != here.second);
}

TEST_CASE("under another strategy the default one's scope and replica context are refused by name", "[A-16][K-9]") {
  Strategy& of_default = Strategy::current();
  ReplicaContext& context = *ReplicaContext::current();
  Strategy strategy = make_strategy();
  const std::string name = strategy.name();
  CHECK(of_default.name() == "the default strategy");
  const auto no_scope = [&] {
    CHECK_THROWS_AS(of_default.scope(), ContextError);
    CHECK_THROWS_WITH(of_default.scope(), Catch::StartsWith("scope (strategy_default.cpp:") &&
                                              Catch::EndsWith("): Must not nest Strategy scopes."));
    CHECK_THROWS_WITH(of_default.seal(),
                      Catch::EndsWith("Mixing different Strategy objects: " + name + " is not the default strategy"));
    CHECK(&Strategy::current() == &strategy);
  };
  {
    const Scope scope = strategy.scope();
    no_scope();
    CHECK_THROWS_WITH(context.devices(), Catch::Contains("): Need to be inside `Strategy::run()`"));
  }
  strategy.run([&](ReplicaContext&) {
    no_scope();
    CHECK_THROWS_AS(context.merge_call([](Strategy&) {}), ContextError);
    CHECK_THROWS_WITH(context.merge_call([](Strategy&) {}),
                      Catch::EndsWith("Mismatching Strategy objects: " + name + " is not the default strategy"));
  });
  of_default.run([&](ReplicaContext& of_run) {
    CHECK_THROWS_WITH(context.merge_call([](Strategy&) {}), Catch::Contains("): Mismatching ReplicaContext: "));
    const Scope scope = strategy.scope();
    strategy.run([&](ReplicaContext&) {
      CHECK_THROWS_WITH(of_run.merge_call([](Strategy&) {}),
                        Catch::EndsWith("Mismatching Strategy objects: " + name + " is not the default strategy"));
    });
  });
}

TEST_CASE("in the default strategy's own contexts a method of another strategy asks for that one's scope", "[A-11]") {
  Strategy strategy = make_strategy();
  const MirroredVariable variable = strategy.create_variable({.name = "w"}, [] { return Tensor::scalar(1.f); });
  const std::string wanted = "Need to be inside `Strategy::scope()` for " + strategy.name();
  const auto refused = [&] {
    CHECK_THROWS_AS(strategy.seal(), ContextError);
    CHECK_THROWS_WITH(strategy.seal(), Catch::EndsWith(wanted));
    CHECK_THROWS_WITH(strategy.create_variable({.name = "v"}, [] { return Tensor::scalar(1.f); }),
                      Catch::EndsWith(wanted));
    CHECK_THROWS_WITH(StrategyExtended{strategy}.colocate_vars_with(variable), Catch::EndsWith(wanted));
  };
  {
    const Scope scope = Strategy::current().scope();
    refused();
  }
  Strategy::current().run([&](ReplicaContext& context) {
    refused();
    context.merge_call([&](Strategy&) { refused(); });
  });
  // Outside of everything, methods for cross-replica context are free, and only those that need a scope ask for it.
  CHECK_NOTHROW(strategy.seal());
  CHECK_THROWS_WITH(StrategyExtended{strategy}.colocate_vars_with(variable), Catch::EndsWith(wanted));
}

TEST_CASE("the default strategy runs a function once, as replica 0 of one", "[K-12]") {
  int calls = 0;
  const PerReplica<int> result = Strategy::current().run([&](ReplicaContext& context) {
    ++calls;
    CHECK(context.replica_id_in_sync_group() == 0);
    CHECK(context.num_replicas_in_sync() == 1);
    CHECK(ReplicaContext::current() == &context);
    CHECK(&context.strategy() == &Strategy::current());
    return 5;
  });
  CHECK(calls == 1);
  CHECK(result.local() == 5);
}

TEST_CASE("the default strategy reduces a value to itself, by either operation", "[K-11]") {
  const StrategyExtended extended{Strategy::current()};
  for (const ReduceOp op : {ReduceOp::sum, ReduceOp::mean}) {
    CHECK(Strategy::current().reduce(op, PerReplica<double>{3}) == 3);
    CHECK(extended.reduce_to(op, PerReplica<std::vector<float>>{{1, 2}}).value() == std::vector<float>{1, 2});
    CHECK(extended.reduce_to(op, PerReplica<double>{4}, StrategyExtended::OneReplica{0}) == 4);
  }
}

TEST_CASE("the default strategy has variables of its own, and updates them", "[H-20][K-13]") {
  Strategy& strategy = Strategy::current();
  const MirroredVariable variable = strategy.create_variable({.name = "v"}, [] { return Tensor::scalar(1.f); });
  const SyncOnReadVariable counter = strategy.create_sync_on_read({.name = "c"}, [] { return Tensor::scalar(1.f); });
  strategy.seal();
  const auto group = make_local_group();
  Strategy other = strategy_on(*group);
  const MirroredVariable foreign = other.create_variable({.name = "v"}, [] { return Tensor::scalar(1.f); });
  CHECK(StrategyExtended{strategy}.variable_created_in_scope(variable));
  CHECK_FALSE(StrategyExtended{strategy}.variable_created_in_scope(foreign));
  CHECK_FALSE(StrategyExtended{other}.variable_created_in_scope(variable));

  const int result = StrategyExtended{strategy}.update(
      variable,
      [&](const Variable& component, float by) {
        CHECK(Strategy::in_cross_replica_context());
        CHECK(&Strategy::current() == &strategy);
        component.assign_add(Tensor::scalar(by));
        counter.assign_add(Tensor::scalar(by));  // legal in update context alone
        return 7;
      },
      args(2.f));
  CHECK(result == 7);
  CHECK(variable.local().to_vector<float>() == std::vector<float>{3});
  CHECK(StrategyExtended{strategy}.read_var(variable).to_vector<float>() == std::vector<float>{3});
}

TEST_CASE("merge_call on one replica calls its function in cross-replica context, and leaves that however it ends",
          "[A-69]") {
  Strategy& strategy = Strategy::current();
  strategy.run([&](ReplicaContext& context) {
    const int result = context.merge_call(
        [&](Strategy& merged, const PerReplica<int>& value) {
          CHECK(&merged == &strategy);
          CHECK(Strategy::in_cross_replica_context());
          return value.local() + 1;
        },
        args(41));
    CHECK(result == 42);
    CHECK(ReplicaContext::current() == &context);
    CHECK_THROWS_WITH(context.merge_call([](Strategy&) { throw ContextError{"thrown"}; }), "thrown");
    CHECK(ReplicaContext::current() == &context);
  });
}
