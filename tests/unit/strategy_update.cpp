// Update context, and variables as their components see it, on one replica.
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include <lockstep/core/base/error.hpp>
#include <lockstep/sync/strategy/strategy.hpp>
#include <lockstep/tf/extended/extended.hpp>

#include "sync/group/local_group.hpp"
#include "sync/strategy/inside.hpp"

using namespace lockstep;

namespace {

struct UpdateFixture {
  std::unique_ptr<ReplicaGroup> group = make_local_group();
  Strategy strategy = strategy_on(*group);
  const StrategyExtended extended{strategy};
  MirroredVariable mirrored = strategy.create_variable({.name = "m"}, [] { return Tensor::scalar(1.f); });
  SyncOnReadVariable counter = strategy.create_sync_on_read({.name = "c", .aggregation = Variable::Aggregation::sum},
                                                            [] { return Tensor::scalar(10.f); });

  UpdateFixture() { strategy.seal(); }
};

float value_of(const Variable& variable) {
  return variable.local().to_vector<float>()[0];
}

TEST_CASE("one can ask whether an update is under way", "[A-6]") {
  UpdateFixture f;
  CHECK_FALSE(Strategy::in_update_context());
  const auto asked = [](const auto&...) { return Strategy::in_update_context(); };
  CHECK(f.extended.update(f.mirrored, asked));
  CHECK(f.extended.update_non_slot({}, asked));
  CHECK_FALSE(Strategy::in_update_context());
  const Scope scope = f.strategy.scope();
  CHECK_FALSE(Strategy::in_update_context());
  f.strategy.run([](ReplicaContext& context) {
    CHECK_FALSE(Strategy::in_update_context());
    context.merge_call([](Strategy&) { CHECK_FALSE(Strategy::in_update_context()); });
  });
}

TEST_CASE("local results are the one component that this process holds, of a plain value too", "[A-39][H-9]") {
  UpdateFixture f;
  CHECK(f.strategy.local_results(PerReplica{3}) == std::vector<int>{3});
  CHECK(f.strategy.local_results(f.strategy.same_on_all(2.5)) == std::vector<double>{2.5});
  CHECK(f.strategy.local_results(std::string{"text"}) == std::vector<std::string>{"text"});
  f.strategy.run([&](ReplicaContext&) { CHECK(f.strategy.local_results(7) == std::vector<int>{7}); });
}

TEST_CASE("every rank is a program of its own, and initialises what it has of a variable", "[I-1][I-2]") {
  UpdateFixture f;
  CHECK(f.extended.between_graph());
  CHECK(f.extended.should_init());
}

/// Only update context lets a sync-on-read variable be added to outside of replica context.
bool in_update_context(const SyncOnReadVariable& variable) {
  try {
    variable.assign_add(Tensor::scalar(0.f));
  } catch (const ContextError&) {
    return false;
  }
  return true;
}

}  // namespace

TEST_CASE("update context nests, and goes with its function however that ends", "[A-7]") {
  UpdateFixture f;
  CHECK_FALSE(in_update_context(f.counter));
  f.extended.update(f.mirrored, [&](const Variable&) {
    CHECK(in_update_context(f.counter));
    f.extended.update_non_slot({}, [&] { CHECK(in_update_context(f.counter)); });
    CHECK(in_update_context(f.counter));
    CHECK_THROWS_WITH(f.extended.update(f.counter, [](const Variable&) { throw std::runtime_error{"inner"}; }),
                      "inner");
    CHECK(in_update_context(f.counter));
    {
      const Scope scope = f.strategy.scope();
      CHECK_FALSE(in_update_context(f.counter));
    }
    CHECK(in_update_context(f.counter));
  });
  CHECK_FALSE(in_update_context(f.counter));
  CHECK_THROWS_WITH(f.extended.update_non_slot({}, [] { throw std::runtime_error{"outer"}; }), "outer");
  CHECK_FALSE(in_update_context(f.counter));
}

TEST_CASE("update calls its function once, with the component and unwrapped arguments, and gives its result",
          "[A-61][H-2]") {
  UpdateFixture f;
  int calls = 0;
  const std::string result = f.extended.update(
      f.mirrored,
      [&](const Variable& component, int same, float plain, const std::vector<int>& nest) {
        ++calls;
        component.assign_add(Tensor::scalar(plain));
        return std::string{component.name()} + " " + std::to_string(same + nest.at(0));
      },
      args(f.strategy.same_on_all(2), 0.5f, std::vector{f.strategy.same_on_all(40)}));
  CHECK(calls == 1);
  CHECK(result == "m 42");
  CHECK(value_of(f.mirrored) == 1.5f);
}

TEST_CASE("update_non_slot calls its function once, without a component", "[A-62][H-6]") {
  UpdateFixture f;
  int calls = 0;
  const std::vector<Variable> variables{f.mirrored, f.counter};
  const int result = f.extended.update_non_slot(
      variables,
      [&](int same, int plain) {
        ++calls;
        return same * plain;
      },
      args(f.strategy.same_on_all(6), 7));
  CHECK(calls == 1);
  CHECK(result == 42);
  Strategy other = strategy_on(*f.group);
  CHECK_THROWS_WITH(StrategyExtended{other}.update_non_slot(variables, [&] { ++calls; }),
                    Catch::EndsWith("): variable 'm' was not created by " + other.name()));
  CHECK(calls == 1);
}

TEST_CASE("a variable stands for its component, in place, in every context", "[C-33][C-49]") {
  UpdateFixture f;
  const auto reads_and_writes = [](const Variable& variable, float expected) {
    CHECK(value_of(variable) == expected);
    variable.local().elements<float>()[0] += 1;
  };
  reads_and_writes(f.mirrored, 1);
  reads_and_writes(f.counter, 10);
  f.strategy.run([&](ReplicaContext& context) {
    reads_and_writes(f.mirrored, 2);
    reads_and_writes(f.counter, 11);
    context.merge_call([&](Strategy&) { reads_and_writes(f.mirrored, 3); });
  });
  f.extended.update(f.counter, [&](const Variable& component) { reads_and_writes(component, 12); });
  CHECK(value_of(f.mirrored) == 4);
  CHECK(f.counter.read().to_vector<float>() == std::vector<float>{13});
}
