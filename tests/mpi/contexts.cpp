// Contexts on every rank, and on one rank alone.
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include <lockstep/core/base/error.hpp>
#include <lockstep/tf/extended/extended.hpp>

#include "core/control/meeting_point.hpp"
#include "support/ranks.hpp"
#include "sync/group/replica_group.hpp"
#include "sync/strategy/inside.hpp"

using namespace lockstep;
using namespace lockstep::test;

TEST_CASE("a method in the wrong context on one rank is that rank's alone where it is caught", "[A-8][B-26]") {
  Strategy& strategy = runtime().strategy();
  Strategy other = runtime().make_strategy();
  const int sum = strategy
                      .run([&](ReplicaContext& context) {
                        if (odd_one()) {
                          CHECK_THROWS_AS(strategy.reduce(ReduceOp::sum, PerReplica<int>{1}), ContextError);
                          CHECK_THROWS_AS(other.seal(), ContextError);
                          CHECK_THROWS_AS(other.run([](ReplicaContext&) {}), ContextError);
                        }
                        return context.merge_call([&](Strategy& merged) {
                          if (odd_one()) CHECK_THROWS_AS(context.merge_call([](Strategy&) {}), ContextError);
                          return StrategyExtended{merged}.reduce_to(ReduceOp::sum, PerReplica<int>{1});
                        });
                      })
                      .local();
  CHECK(sum == ranks());
}

TEST_CASE("a method in the wrong context on one rank is a failure of that rank where it is not caught", "[A-8][A-12]") {
  if (ranks() == 1) return;
  Strategy& strategy = runtime().strategy();
  const auto step = [&] {
    strategy.run([&](ReplicaContext& context) {
      if (odd_one()) strategy.seal();
      (void)context.all_reduce(ReduceOp::sum, 1);
    });
  };
  const std::string told =
      "Method requires being in cross-replica context, use ReplicaContext::current()->merge_call()";
  if (odd_one()) {
    CHECK_THROWS_AS(step(), ContextError);
  } else {
    CHECK_THROWS_WITH(step(), Catch::StartsWith("replica " + std::to_string(ranks() - 1) + " (") &&
                                  Catch::Contains(") failed: seal (contexts.cpp:") && Catch::EndsWith("): " + told));
  }
  CHECK(strategy.reduce(ReduceOp::sum, PerReplica<int>{1}) == ranks());
}

TEST_CASE("summaries are replica 0's in replica code, and the chief's everywhere else, however contexts nest",
          "[A-67][I-6][I-7][I-8]") {
  Strategy& strategy = runtime().strategy();
  const bool chief = rank() == 0;
  CHECK(Strategy::should_record_summaries());  // the default strategy's: a program of one
  {
    const Scope scope = strategy.scope();
    CHECK(Strategy::should_record_summaries() == chief);
    strategy.run([&](ReplicaContext& context) {
      CHECK(Strategy::should_record_summaries() == (context.replica_id_in_sync_group() == 0));
      context.merge_call([&](Strategy& merged) {
        CHECK(Strategy::should_record_summaries() == chief);
        merged.run([&](ReplicaContext&) { CHECK(Strategy::should_record_summaries() == chief); });
        CHECK(Strategy::should_record_summaries() == chief);
      });
      CHECK(Strategy::should_record_summaries() == chief);
    });
    StrategyExtended{strategy}.update_non_slot({}, [&] { CHECK(Strategy::should_record_summaries() == chief); });
    CHECK(Strategy::should_record_summaries() == chief);
  }
  CHECK(Strategy::should_record_summaries());
  CHECK_THROWS_AS(strategy.run([](ReplicaContext&) { throw ContextError{"thrown"}; }), ContextError);
  CHECK(Strategy::should_record_summaries());
}

TEST_CASE("a summary of a sync-on-read variable is replica 0's own look at its component, and starts no collective",
          "[I-6]") {
  Strategy& strategy = runtime().strategy();
  const SyncOnReadVariable counter = strategy.create_sync_on_read(
      {.name = "seen", .aggregation = Variable::Aggregation::sum}, [] { return Tensor::scalar(5.f); });
  strategy.run([&](ReplicaContext& context) {
    counter.assign_add(Tensor::scalar(static_cast<float>(rank() + 1)));
    const auto before = inside(strategy).group().meeting().meetings();
    if (Strategy::should_record_summaries()) CHECK(counter.local().to_vector<float>() == std::vector<float>{6});
    CHECK(inside(strategy).group().meeting().meetings() == before);
    CHECK(context.all_reduce(ReduceOp::sum, 1) == ranks());  // nobody was left in a collective
  });
}

TEST_CASE("checkpoints and summaries are the chief's, in every context", "[I-3][I-4][I-5]") {
  Strategy& strategy = runtime().strategy();
  const auto check = [&] {
    CHECK(StrategyExtended{strategy}.should_checkpoint() == runtime().is_chief());
    CHECK(StrategyExtended{strategy}.should_save_summary() == runtime().is_chief());
  };
  CHECK(runtime().is_chief() == (rank() == 0));
  check();
  const Scope scope = strategy.scope();
  check();
  strategy.run([&](ReplicaContext& context) {
    check();
    context.merge_call([&](Strategy&) { check(); });
  });
  check();
}
