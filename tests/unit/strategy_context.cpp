// Who may call what where, on one replica. Across ranks: tests/mpi.
#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

#include <lockstep/core/base/error.hpp>
#include <lockstep/sync/strategy/strategy.hpp>
#include <lockstep/tf/extended/extended.hpp>

#include "core/control/meeting_point.hpp"
#include "strategy_support.hpp"
#include "sync/reduce/reductions.hpp"
#include "sync/strategy/inside.hpp"

using namespace lockstep;
using lockstep::test::make;
using lockstep::test::Pairs;
using lockstep::test::TwoStrategies;

namespace {

constexpr const char* wrong_context =
    "Method requires being in cross-replica context, use ReplicaContext::current()->merge_call()";

constexpr const char* read_in_run =
    "): reading a variable requires cross-replica context, and this is replica context, inside of run(): call local() "
    "on the variable for this replica's component, or read it in a merge_call or after the run";

/// Every method that needs cross-replica context, as `strategy`'s.
std::map<std::string, std::function<void()>> cross_replica_methods(Strategy& strategy,
                                                                   const MirroredVariable& variable) {
  const StrategyExtended extended{strategy};
  const PerReplica<Tensor> value{Tensor::scalar(1.f)};
  return {
      {"scope", [&strategy] { (void)strategy.scope(); }},
      {"run", [&strategy] { strategy.run([](ReplicaContext&) {}); }},
      {"run with arguments", [&strategy] { strategy.run([](ReplicaContext&, int, int) {}, args(1, 2)); }},
      {"seal", [&strategy] { strategy.seal(); }},
      {"rebroadcast", [&strategy] { strategy.rebroadcast(); }},
      {"reduce", [&strategy] { (void)strategy.reduce(ReduceOp::sum, PerReplica<int>{1}); }},
      {"reduce_to", [extended, value] { (void)extended.reduce_to(ReduceOp::sum, value); }},
      {"reduce_to a variable",
       [extended, value, variable] { (void)extended.reduce_to(ReduceOp::sum, value, variable); }},
      {"reduce_to one",
       [extended, value] { (void)extended.reduce_to(ReduceOp::sum, value, StrategyExtended::OneReplica{0}); }},
      {"batch_reduce_to",
       [extended, value, variable] {
         (void)extended.batch_reduce_to(ReduceOp::sum, Pairs{{value, variable}});
       }},
      {"broadcast_to", [extended, value] { (void)extended.broadcast_to(value); }},
      {"update", [extended, variable] { extended.update(variable, [](const Variable&) {}); }},
      {"update with arguments",
       [extended, variable] {
         extended.update(
             variable, [](const Variable&, int, int) {}, args(1, 2));
       }},
      {"update_non_slot", [extended] { extended.update_non_slot({}, [] {}); }},
      {"update_non_slot with arguments",
       [extended] {
         extended.update_non_slot(
             {}, [](int, int) {}, args(1, 2));
       }},
      {"map", [extended] { (void)extended.map(std::vector{1}, [](int item) { return item; }); }},
      {"map with arguments",
       [extended] {
         (void)extended.map(
             std::vector{1}, [](int item, int a, int b) { return item + a + b; }, args(1, 2));
       }},
      {"read_var", [extended, variable] { (void)extended.read_var(variable); }},
      {"read_vars", [extended, variable] { (void)extended.read_vars({variable}); }},
  };
}

/// How a message of the method of that name in the table begins.
auto begins_with(const std::string& name) {
  return Catch::StartsWith(name.substr(0, name.find(' ')) + " (strategy_context.cpp:");
}

}  // namespace

TEST_CASE("outside of everything there is the default strategy: one replica, no scope", "[A-1][A-9]") {
  CHECK_FALSE(Strategy::has_current());
  CHECK_FALSE(Strategy::in_cross_replica_context());
  Strategy& current = Strategy::current();
  CHECK(&current == &Strategy::current());
  CHECK(current.num_replicas_in_sync() == 1);
  CHECK(current.reduce(ReduceOp::mean, PerReplica<double>{3}) == 3);
  CHECK(current.run([](ReplicaContext& context) { return context.all_reduce(ReduceOp::sum, 2); }).local() == 2);
  CHECK_FALSE(Strategy::has_current());
}

TEST_CASE("contexts and the default strategy are a thread's own", "[A-3]") {
  TwoStrategies f;
  const Scope scope = f.strategy.scope();
  const Strategy* const here = &Strategy::current();
  bool has = true;
  const Strategy* there = here;
  std::thread{[&] {
    has = Strategy::has_current();
    there = &Strategy::current();
  }}.join();
  CHECK(here == &f.strategy);
  CHECK_FALSE(has);
  CHECK(there != here);
}

TEST_CASE("a scope makes its strategy current, in cross-replica context, until it goes",
          "[A-1][A-10][A-20][A-22][A-23]") {
  TwoStrategies f;
  const auto before = f.meetings();
  {
    const Scope scope = f.strategy.scope();
    CHECK(Strategy::has_current());
    CHECK(Strategy::in_cross_replica_context());
    CHECK(ReplicaContext::current() == nullptr);
    CHECK(&Strategy::current() == &f.strategy);
    {
      const Scope again = f.strategy.scope();
      CHECK(&Strategy::current() == &f.strategy);
    }
    CHECK(Strategy::has_current());
    CHECK_THROWS_WITH(
        f.other.scope(),
        begins_with("scope") && Catch::EndsWith("Mixing different Strategy objects: strategy 0 is not strategy 1"));
  }
  CHECK_FALSE(Strategy::has_current());
  const Scope other = f.other.scope();
  CHECK(&Strategy::current() == &f.other);
  CHECK(f.meetings() == before);  // entering and leaving are nobody else's business
}

TEST_CASE("run is replica context, a merge function cross-replica context, and both end as they began",
          "[A-1][A-13][A-14][A-15][A-58][A-68][A-70][A-76][B-23][B-25]") {
  TwoStrategies f;
  f.strategy.run([&](ReplicaContext& context) {
    CHECK(Strategy::has_current());
    CHECK_FALSE(Strategy::in_cross_replica_context());
    CHECK(ReplicaContext::current() == &context);
    CHECK(&Strategy::current() == &f.strategy);
    CHECK(&context.strategy() == &f.strategy);
    CHECK(context.replica_id_in_sync_group() == 0);
    CHECK(context.num_replicas_in_sync() == 1);
    context.merge_call([&](Strategy& merged) {
      CHECK(&merged == &f.strategy);
      CHECK(Strategy::in_cross_replica_context());
      CHECK(ReplicaContext::current() == nullptr);
      CHECK(context.num_replicas_in_sync() == 1);  // needs no context, unlike the methods that do something
      CHECK(&context.strategy() == &f.strategy);
      const auto before = f.meetings();
      const auto outside = Catch::Contains("): Need to be inside `Strategy::run()`");
      CHECK_THROWS_WITH(context.replica_id_in_sync_group(), begins_with("replica_id_in_sync_group") && outside);
      CHECK_THROWS_WITH(context.merge_call([](Strategy&) {}), begins_with("merge_call") && outside);
      CHECK_THROWS_WITH(context.all_reduce(ReduceOp::sum, 1), begins_with("all_reduce") && outside);
      CHECK_THROWS_WITH(inside(context).declared_merge("", [](Reductions&) {}),
                        begins_with("declared_merge") && outside);
      CHECK(f.meetings() == before);
      merged.run([&](ReplicaContext& inner) {
        CHECK(ReplicaContext::current() == &inner);
        CHECK(f.group->meeting().depth() == 2);
        CHECK_THROWS_WITH(context.merge_call([](Strategy&) {}),
                          Catch::EndsWith("): Mismatching ReplicaContext: another run has begun inside its run"));
      });
      CHECK(ReplicaContext::current() == nullptr);
    });
    CHECK(ReplicaContext::current() == &context);
  });
  CHECK_FALSE(Strategy::has_current());
  CHECK(f.group->meeting().depth() == 0);
}

TEST_CASE("a context that was kept after its run is refused") {
  TwoStrategies f;
  ReplicaContext* kept = nullptr;
  f.strategy.run([&](ReplicaContext& context) { kept = &context; });
  // Only its address is looked at.
  const std::string over = "): Mismatching ReplicaContext: its run is over, and it must not be kept";
  CHECK_THROWS_WITH(kept->merge_call([](Strategy&) {}), begins_with("merge_call") && Catch::EndsWith(over));
  CHECK_THROWS_WITH(kept->all_reduce(ReduceOp::sum, 1), begins_with("all_reduce") && Catch::EndsWith(over));
}

TEST_CASE("an exception leaves every context on its way, and is the one that was thrown", "[A-3][B-47]") {
  TwoStrategies f;
  const auto step = [&] {
    f.strategy.run([&](ReplicaContext& context) {
      context.merge_call([&](Strategy& merged) {
        const Scope scope = merged.scope();
        merged.run([](ReplicaContext&) { throw std::out_of_range{"deep"}; });
      });
    });
  };
  CHECK_THROWS_AS(step(), std::out_of_range);
  CHECK_FALSE(Strategy::has_current());
  CHECK(f.group->meeting().depth() == 0);
  CHECK(f.strategy.run([](ReplicaContext&) { return 1; }).local() == 1);  // usable again
}

TEST_CASE("contexts are left in the reverse of the order they were entered in, also on an exception's way", "[A-21]") {
  TwoStrategies f;
  const MirroredVariable variable = make(f.strategy, "w");
  f.strategy.seal();
  const auto where = [&] {
    return Strategy::current().name() +
           (Strategy::in_update_context()          ? ", update"
            : Strategy::in_cross_replica_context() ? ", cross-replica"
                                                   : ", replica") +
           std::to_string(f.group->meeting().depth());
  };
  /// Notes where the program stands when it is made and when it goes.
  struct Visit {
    const std::function<std::string()> where;
    std::vector<std::string>& left;
    Visit(std::function<std::string()> asked, std::vector<std::string>& entered, std::vector<std::string>& to)
        : where{std::move(asked)}, left{to} {
      entered.push_back(where());
    }
    ~Visit() { left.push_back(where()); }
  };
  for (const bool throws : {false, true}) {
    std::vector<std::string> entered, left;
    const auto visit = [&] { return Visit{where, entered, left}; };
    const auto go = [&] {
      const Visit outside = visit();
      const Scope scope = f.strategy.scope();
      const Visit in_scope = visit();
      f.strategy.run([&](ReplicaContext& context) {
        const Visit in_run = visit();
        context.merge_call([&](Strategy& merged) {
          const Visit in_merge = visit();
          StrategyExtended{merged}.update(variable, [&](const Variable&) {
            const Visit in_update = visit();
            merged.run([&](ReplicaContext&) {
              const Visit innermost = visit();
              if (throws) throw std::out_of_range{"deep"};
            });
          });
        });
      });
    };
    if (throws) {
      CHECK_THROWS_AS(go(), std::out_of_range);
    } else {
      go();
    }
    CHECK(entered == std::vector<std::string>{"the default strategy, replica0", "strategy 0, cross-replica0",
                                              "strategy 0, replica1", "strategy 0, cross-replica1",
                                              "strategy 0, update1", "strategy 0, replica2"});
    CHECK(left == std::vector<std::string>(entered.rbegin(), entered.rend()));
  }
}

TEST_CASE("an exception that replica code catches in a merge function's stead costs nothing more") {
  TwoStrategies f;
  f.strategy.run([&](ReplicaContext& context) {
    CHECK_THROWS_WITH(context.merge_call([](Strategy&) { throw std::runtime_error{"merge"}; }), "merge");
    CHECK(ReplicaContext::current() == &context);
    CHECK(context.all_reduce(ReduceOp::sum, 1) == 1);
  });
}

TEST_CASE("methods for cross-replica context refuse replica context, before any agreement",
          "[A-12][A-18][A-24][K-21]") {
  TwoStrategies f;
  const MirroredVariable variable = make(f.strategy, "w");
  f.strategy.seal();
  f.strategy.run([&](ReplicaContext&) {
    const auto before = f.meetings();
    for (const auto& [name, method] : cross_replica_methods(f.strategy, variable)) {
      CAPTURE(name);
      CHECK_THROWS_AS(method(), ContextError);
      CHECK_THROWS_WITH(method(),
                        begins_with(name) && Catch::EndsWith(name.starts_with("read") ? read_in_run : wrong_context));
    }
    CHECK(f.meetings() == before);
    // These need no context.
    CHECK(StrategyExtended{f.strategy}.variable_created_in_scope(variable));
    CHECK(StrategyExtended{f.strategy}.should_checkpoint());
    CHECK(StrategyExtended{f.strategy}.should_save_summary());
    CHECK(f.strategy.num_replicas_in_sync() == 1);
  });
}

TEST_CASE("`read` names itself and its caller, whatever is wrong", "[A-12][A-48]") {
  TwoStrategies f;
  const auto made = [&](Variable::Aggregation aggregation) {
    return f.strategy.create_sync_on_read({.name = "seen", .aggregation = aggregation},
                                          [] { return Tensor::scalar(1.f); });
  };
  const SyncOnReadVariable summed = made(Variable::Aggregation::sum), none = made(Variable::Aggregation::none);
  f.strategy.seal();
  f.strategy.run([&](ReplicaContext&) {
    CHECK_THROWS_AS(summed.read(), ContextError);
    CHECK_THROWS_WITH(summed.read(), begins_with("read") && Catch::EndsWith(read_in_run));
  });
  CHECK_THROWS_WITH(none.read(), begins_with("read") && Catch::Contains("): variable 'seen_1' has the aggregation"));
  std::optional<Strategy> gone{std::in_place, std::move(f.strategy)};
  gone.reset();
  CHECK_THROWS_WITH(summed.read(),
                    begins_with("read") && Catch::EndsWith("): the strategy of variable 'seen' is gone"));
}

TEST_CASE("methods of one strategy refuse another's context, before any agreement", "[A-10][A-24]") {
  TwoStrategies f;
  const MirroredVariable variable = make(f.strategy, "w");
  f.strategy.seal();
  const auto refused = [&] {
    const auto before = f.meetings();
    for (const auto& [name, method] : cross_replica_methods(f.strategy, variable)) {
      CAPTURE(name);
      CHECK_THROWS_AS(method(), ContextError);
      CHECK_THROWS_WITH(
          method(),
          begins_with(name) && Catch::EndsWith("Mixing different Strategy objects: strategy 1 is not strategy 0"));
    }
    CHECK_THROWS_WITH(f.strategy.same_on_all(1), begins_with("same_on_all"));
    CHECK_THROWS_WITH(f.strategy.broadcast_object(1), begins_with("broadcast_object"));
    CHECK_THROWS_WITH(make(f.strategy, "v"), begins_with("create_variable"));
    CHECK(f.meetings() == before);
  };
  {
    const Scope scope = f.other.scope();
    refused();
  }
  f.other.run([&](ReplicaContext&) { refused(); });
}

TEST_CASE("the same methods work in a scope, in a merge function, in update context, and outside of everything",
          "[A-8][A-9][A-18]") {
  TwoStrategies f;
  const MirroredVariable variable = make(f.strategy, "w");
  f.strategy.seal();
  const auto allowed = [&] {
    for (const auto& [name, method] : cross_replica_methods(f.strategy, variable)) {
      CAPTURE(name);
      CHECK_NOTHROW(method());
    }
  };
  allowed();
  {
    const Scope scope = f.strategy.scope();
    allowed();
  }
  f.strategy.run([&](ReplicaContext& context) { context.merge_call([&](Strategy&) { allowed(); }); });
  StrategyExtended{f.strategy}.update_non_slot({}, allowed);
}

TEST_CASE("update is cross-replica context of its own", "[A-61][C-37]") {
  TwoStrategies f;
  const MirroredVariable variable = make(f.strategy, "w");
  f.strategy.seal();
  const int result = StrategyExtended{f.strategy}.update(
      variable,
      [&](const Variable& component, int five) {
        CHECK(Strategy::in_cross_replica_context());
        CHECK(ReplicaContext::current() == nullptr);
        CHECK(&Strategy::current() == &f.strategy);
        component.assign_add(Tensor::scalar(2.f));
        return five + 1;
      },
      args(f.strategy.same_on_all(5)));
  CHECK(result == 6);
  CHECK(variable.local().to_vector<float>() == std::vector<float>{3});
  CHECK_FALSE(Strategy::has_current());
  CHECK_THROWS_AS(StrategyExtended{f.strategy}.update(variable, [](const Variable&) { throw std::runtime_error{"x"}; }),
                  std::runtime_error);
  CHECK_FALSE(Strategy::has_current());
}

TEST_CASE("variables are created in every context of their strategy, whose they are, and in none of another's",
          "[A-17][A-25]") {
  TwoStrategies f;
  std::vector<MirroredVariable> made{make(f.strategy, "outside")};
  {
    const Scope scope = f.strategy.scope();
    made.push_back(make(f.strategy, "in a scope"));
  }
  f.strategy.run([&](ReplicaContext& context) {
    made.push_back(make(f.strategy, "in replica context"));
    context.merge_call([&](Strategy& merged) { made.push_back(make(merged, "in a merge function")); });
  });
  for (const MirroredVariable& variable : made) {
    CAPTURE(variable.name());
    CHECK(StrategyExtended{f.strategy}.variable_created_in_scope(variable));
    CHECK_FALSE(StrategyExtended{f.other}.variable_created_in_scope(variable));
    CHECK(std::ranges::count(inside(f.strategy.store()).variables(), &inside(variable).state(),
                             [](const auto& each) { return each.get(); }) == 1);
  }
  const std::string mixing = "Mixing different Strategy objects: strategy 0 is not strategy 1";
  const Scope scope = f.strategy.scope();
  CHECK_THROWS_WITH(make(f.other, "w"), Catch::EndsWith(mixing));
  CHECK_THROWS_WITH(f.other.create_sync_on_read({.name = "w"}, [] { return Tensor::scalar(1.f); }),
                    Catch::EndsWith(mixing));
  f.strategy.run([&](ReplicaContext&) { CHECK_THROWS_WITH(make(f.other, "w"), Catch::EndsWith(mixing)); });
  CHECK(inside(f.other.store()).variables().empty());
}

TEST_CASE("replica code and merge functions run on the thread that called run, with all that is its own",
          "[B-7][I-9]") {
  thread_local int step = 0;
  TwoStrategies f;
  step = 1;
  f.strategy.run([&](ReplicaContext& context) {
    CHECK(step == 1);
    step = 2;
    context.merge_call([&](Strategy& merged) {
      CHECK(step == 2);
      merged.run([&](ReplicaContext&) { step = 3; });
    });
    CHECK(step == 3);
  });
  CHECK(step == 3);
}
