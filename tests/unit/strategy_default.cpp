// The default strategy: what a program has outside of every scope. One replica, and the same calls as any other.
#include <vector>

#include <catch2/catch.hpp>

#include <lockstep/base/error.hpp>
#include <lockstep/strategy/strategy.hpp>

using namespace lockstep;

TEST_CASE("the default strategy runs a function once, as replica 0 of one", "[K-12]") {
  int calls = 0;
  const PerReplica<int> result = Strategy::current().run([&](ReplicaContext& context) {
    ++calls;
    CHECK(context.replica_id_in_sync_group() == 0);
    CHECK(context.num_replicas_in_sync() == 1);
    CHECK(replica_context() == &context);
    CHECK(&context.strategy() == &Strategy::current());
    return 5;
  });
  CHECK(calls == 1);
  CHECK(result.local() == 5);
}

TEST_CASE("the default strategy reduces a value to itself, by either operation", "[K-11]") {
  StrategyExtended& extended = Strategy::current().extended();
  for (const ReduceOp op : {ReduceOp::sum, ReduceOp::mean}) {
    CHECK(Strategy::current().reduce(op, PerReplica<double>{3}) == 3);
    CHECK(extended.reduce_to(op, PerReplica<std::vector<float>>{{1, 2}}).value() == std::vector<float>{1, 2});
    CHECK(extended.reduce_to(op, PerReplica<double>{4}, OneReplica{0}) == 4);
  }
}

TEST_CASE("the default strategy has variables of its own, and updates them", "[H-20][K-13]") {
  Strategy& strategy = Strategy::current();
  const MirroredVariable variable = strategy.create_variable({.name = "v"}, [] { return Tensor::scalar(1.f); });
  const SyncOnReadVariable counter = strategy.create_sync_on_read({.name = "c"}, [] { return Tensor::scalar(1.f); });
  strategy.seal();
  const auto group = make_local_group();
  Strategy other{*group};
  const MirroredVariable foreign = other.create_variable({.name = "v"}, [] { return Tensor::scalar(1.f); });
  CHECK(strategy.extended().variable_created_in_scope(variable));
  CHECK_FALSE(strategy.extended().variable_created_in_scope(foreign));
  CHECK_FALSE(other.extended().variable_created_in_scope(variable));

  const int result = strategy.extended().update(
      variable,
      [&](const Variable& component, float by) {
        CHECK(in_cross_replica_context());
        CHECK(&Strategy::current() == &strategy);
        component.assign_add(Tensor::scalar(by));
        counter.assign_add(Tensor::scalar(by));  // legal in update context alone
        return 7;
      },
      2.f);
  CHECK(result == 7);
  CHECK(variable.local().to_vector<float>() == std::vector<float>{3});
  CHECK(strategy.extended().read_var(variable).to_vector<float>() == std::vector<float>{3});
}

TEST_CASE("merge_call on one replica calls its function in cross-replica context, and leaves that however it ends",
          "[A-69]") {
  Strategy& strategy = Strategy::current();
  strategy.run([&](ReplicaContext& context) {
    const int result = context.merge_call(
        [&](Strategy& merged, const PerReplica<int>& value) {
          CHECK(&merged == &strategy);
          CHECK(in_cross_replica_context());
          return value.local() + 1;
        },
        args(41));
    CHECK(result == 42);
    CHECK(replica_context() == &context);
    CHECK_THROWS_WITH(context.merge_call([](Strategy&) { throw ContextError{"thrown"}; }), "thrown");
    CHECK(replica_context() == &context);
  });
}
