// Every assignment to every kind of variable, in every context. Values differ on every rank; sums are exact.
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

namespace {

struct Method {
  const char* name;
  void (Variable::*call)(const Tensor&, Here) const;
  double keeps;  ///< how often the old value is in the new one
  double takes;  ///< and the assigned one

  void operator()(const Variable& variable, double value, Here here = Here::current()) const {
    (variable.*call)(Tensor::scalar(value), here);
  }
  double result(double assigned) const { return keeps * 100 + takes * assigned; }
};

const std::vector<Method> methods{{"assign", &Variable::assign, 0, 1},
                                  {"assign_add", &Variable::assign_add, 1, 1},
                                  {"assign_sub", &Variable::assign_sub, 1, -1}};

const std::vector<Variable::Aggregation> aggregations{Variable::Aggregation::none, Variable::Aggregation::sum,
                                                      Variable::Aggregation::mean,
                                                      Variable::Aggregation::only_first_replica};

Tensor hundred() {
  return Tensor::scalar(100.0);
}

double component(const Variable& variable) {
  return variable.local().to_vector<double>()[0];
}

/// Calls `body(method, aggregation)` with all pairs of them.
template <class Body>
void for_each(Body&& body) {
  for (const Method& method : methods) {
    for (const Variable::Aggregation aggregation : aggregations) {
      CAPTURE(method.name, name_of(aggregation));
      body(method, aggregation);
    }
  }
}

/// What the replicas' values 2, 4, 6, … are together.
double aggregated(Variable::Aggregation aggregation) {
  switch (aggregation) {
    case Variable::Aggregation::sum: return 2.0 * triangle();
    case Variable::Aggregation::mean: return 1.0 + ranks();
    case Variable::Aggregation::only_first_replica:
    case Variable::Aggregation::none: break;
  }
  return 2;
}

}  // namespace

TEST_CASE("in replica context every assignment of a mirrored variable goes by its aggregation",
          "[C-20][C-21][C-22][C-23]") {
  Strategy strategy = runtime().make_strategy();
  for_each([&](const Method& method, Variable::Aggregation aggregation) {
    const MirroredVariable variable = strategy.create_variable({.name = "v", .aggregation = aggregation}, hundred);
    const bool refused = aggregation == Variable::Aggregation::none;
    strategy.run([&](ReplicaContext&) {
      const double mine = 2.0 * (rank() + 1);
      if (refused) {
        CHECK_THROWS_AS(method(variable, mine), InvalidArgument);
      } else {
        method(variable, mine);
      }
    });
    CHECK(component(variable) == (refused ? 100 : method.result(aggregated(aggregation))));
  });
}

TEST_CASE("in cross-replica context and in update an assignment of a mirrored variable is its component's alone",
          "[C-36][C-37]") {
  Strategy strategy = runtime().make_strategy();
  for_each([&](const Method& method, Variable::Aggregation aggregation) {
    const auto make = [&] { return strategy.create_variable({.name = "v", .aggregation = aggregation}, hundred); };
    const MirroredVariable in_scope = make(), in_merge = make(), in_update = make();
    strategy.seal();
    const auto before = inside(strategy).group().meeting().meetings();
    {
      const Scope scope = strategy.scope();
      method(in_scope, 6);
    }
    StrategyExtended{strategy}.update(in_update, [&](const Variable& variable) { method(variable, 6); });
    CHECK(inside(strategy).group().meeting().meetings() == before);
    strategy.run([&](ReplicaContext& context) { context.merge_call([&](Strategy&) { method(in_merge, 6); }); });
    CHECK(inside(strategy).group().meeting().meetings() == before + 2);  // of run and merge_call
    for (const MirroredVariable& variable : {in_scope, in_merge, in_update})
      CHECK(component(variable) == method.result(6));
  });
}

TEST_CASE("in replica context and in update an assignment of a sync-on-read variable is its component's alone",
          "[C-24][C-25][C-26][C-27]") {
  Strategy strategy = runtime().make_strategy();
  for_each([&](const Method& method, Variable::Aggregation aggregation) {
    const auto make = [&] { return strategy.create_sync_on_read({.name = "v", .aggregation = aggregation}, hundred); };
    const SyncOnReadVariable in_replica = make(), in_update = make();
    strategy.seal();
    const auto before = inside(strategy).group().meeting().meetings();
    strategy.run([&](ReplicaContext&) { method(in_replica, rank() + 1); });
    StrategyExtended{strategy}.update(in_update, [&](const Variable& variable) { method(variable, 6); });
    CHECK(inside(strategy).group().meeting().meetings() == before + 1);  // of run
    CHECK(component(in_replica) == method.result(rank() + 1));
    CHECK(component(in_update) == method.result(6));  // whole, also where components are summed
  });
}

TEST_CASE("in cross-replica context a sync-on-read variable is assigned on all components, and not added to",
          "[C-38][C-39]") {
  Strategy strategy = runtime().make_strategy();
  for_each([&](const Method& method, Variable::Aggregation aggregation) {
    const SyncOnReadVariable variable =
        strategy.create_sync_on_read({.name = "v", .aggregation = aggregation}, hundred);
    strategy.seal();
    const auto before = inside(strategy).group().meeting().meetings();
    if (method.keeps == 0) {
      method(variable, 6.0 * ranks());
      CHECK(component(variable) == (aggregation == Variable::Aggregation::sum ? 6 : 6.0 * ranks()));
    } else {
      CHECK_THROWS_AS(method(variable, 6), ContextError);
      CHECK(component(variable) == 100);
    }
    CHECK(inside(strategy).group().meeting().meetings() == before);
    if (method.keeps == 0 && aggregation != Variable::Aggregation::none)
      CHECK(variable.read().to_vector<double>() == std::vector{6.0 * ranks()});
  });
}
