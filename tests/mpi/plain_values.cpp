// Reductions and broadcasts of what is no PerReplica: by the type alone, so that every rank does the same, also where
// the values differ.
#include <concepts>
#include <map>
#include <string>
#include <utility>
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

/// Agreements that `body` costs.
template <class Body>
std::uint64_t meetings_of(Body&& body) {
  const MeetingPoint& meeting = inside(runtime().strategy()).group().meeting();
  const auto before = meeting.meetings();
  body();
  return meeting.meetings() - before;
}

template <class Expected>
void check_same(const Expected& expected, const std::same_as<Expected> auto& value) {
  CHECK(value == expected);
}

Tensor own() {
  return Tensor::from({1.f + rank(), 2.f}, {2});
}

const auto mirrored_sum = Catch::EndsWith(
    "): A mirrored value cannot be reduced with the given reduce op sum: it is one value, the same on every replica");

auto plain_sum() {
  return Catch::EndsWith(
      "): A non-distributed value cannot be reduced with the given reduce op sum: it does not say what each of the " +
      std::to_string(ranks()) + " replicas adds, as a PerReplica does");
}

}  // namespace

TEST_CASE("the mean of a mirrored value is that value, without communication", "[E-1]") {
  Strategy strategy = runtime().make_strategy();
  const Variable variable = strategy.create_variable({.name = "v"}, [] { return Tensor::scalar(0.f); });
  const Mirrored<int> seven = strategy.same_on_all(7);
  const Mirrored<Tensor> tensor = strategy.same_on_all(Tensor::scalar(7));
  const auto meetings = meetings_of([&] {
    const Mirrored<int> mean = StrategyExtended{strategy}.reduce_to(ReduceOp::mean, seven);
    CHECK(mean.value() == 7);  // though it is an integer: nothing is divided
    const Mirrored<Tensor> of_tensor = StrategyExtended{strategy}.reduce_to(ReduceOp::mean, tensor, variable);
    CHECK(of_tensor.value().view().data() == tensor.value().view().data());
    for (int root = 0; root < ranks(); ++root) {
      const std::optional<int> at_root =
          StrategyExtended{strategy}.reduce_to(ReduceOp::mean, seven, StrategyExtended::OneReplica{root});
      CHECK(at_root == (rank() == root ? std::optional{7} : std::nullopt));
    }
    check_same(7, strategy.reduce(ReduceOp::mean, seven));
  });
  CHECK(meetings == 0);
}

TEST_CASE("the sum of a mirrored value is refused, on one replica too", "[E-1]") {
  Strategy strategy = runtime().make_strategy();
  const Variable variable = strategy.create_variable({.name = "v"}, [] { return Tensor::scalar(0.f); });
  const Mirrored<int> seven = strategy.same_on_all(7);
  const auto meetings = meetings_of([&] {
    const StrategyExtended extended{strategy};
    CHECK_THROWS_AS(extended.reduce_to(ReduceOp::sum, seven), InvalidArgument);
    CHECK_THROWS_WITH(extended.reduce_to(ReduceOp::sum, seven), mirrored_sum);
    CHECK_THROWS_WITH(extended.reduce_to(ReduceOp::sum, seven, variable), mirrored_sum);
    CHECK_THROWS_WITH(extended.reduce_to(ReduceOp::sum, seven, StrategyExtended::OneReplica{0}), mirrored_sum);
    CHECK_THROWS_WITH(strategy.reduce(ReduceOp::sum, seven), mirrored_sum);
    CHECK_THROWS_WITH(Strategy::current().reduce(ReduceOp::sum, seven), mirrored_sum);
  });
  CHECK(meetings == 0);
  expect_in_step();
}

TEST_CASE("the mean of a plain value is each rank's own, without communication, and proves nothing", "[E-2][E-5]") {
  Strategy strategy = runtime().make_strategy();
  const Variable variable = strategy.create_variable({.name = "v"}, [] { return Tensor::scalar(0.f); });
  const Tensor tensor = own();
  const auto meetings = meetings_of([&] {
    const StrategyExtended extended{strategy};
    check_same(rank(), extended.reduce_to(ReduceOp::mean, rank()));
    check_same(rank(), extended.reduce_to(ReduceOp::mean, rank(), variable));
    check_same(rank(), strategy.reduce(ReduceOp::mean, rank()));
    check_same(std::map<std::string, double>{{"loss", 0.5 * rank()}},
               extended.reduce_to(ReduceOp::mean, std::map<std::string, double>{{"loss", 0.5 * rank()}}));
    CHECK(extended.reduce_to(ReduceOp::mean, tensor).view().data() == tensor.view().data());
    for (int root = 0; root < ranks(); ++root)
      CHECK(extended.reduce_to(ReduceOp::mean, rank(), StrategyExtended::OneReplica{root}) ==
            (rank() == root ? std::optional{rank()} : std::nullopt));
  });
  CHECK(meetings == 0);
}

TEST_CASE("the sum of a plain value is refused by several replicas, and is that value on one", "[E-2][E-6]") {
  Strategy strategy = runtime().make_strategy();
  const Variable variable = strategy.create_variable({.name = "v"}, [] { return Tensor::scalar(0.f); });
  const StrategyExtended extended{strategy};
  check_same(5, Strategy::current().reduce(ReduceOp::sum, 5));  // the default strategy has one replica
  const auto meetings = meetings_of([&] {
    if (ranks() == 1) {
      check_same(5, extended.reduce_to(ReduceOp::sum, 5));
      check_same(5, extended.reduce_to(ReduceOp::sum, 5, variable));
      check_same(std::optional{5}, extended.reduce_to(ReduceOp::sum, 5, StrategyExtended::OneReplica{0}));
      check_same(std::vector{1.f, 2.f}, strategy.reduce(ReduceOp::sum, own()).to_vector<float>());
      return;
    }
    // A zero is refused like any other value: whether ranks meet must not hang on what they hold.
    CHECK_THROWS_AS(extended.reduce_to(ReduceOp::sum, rank()), InvalidArgument);
    CHECK_THROWS_WITH(extended.reduce_to(ReduceOp::sum, rank()), plain_sum());
    CHECK_THROWS_WITH(extended.reduce_to(ReduceOp::sum, own(), variable), plain_sum());
    CHECK_THROWS_WITH(extended.reduce_to(ReduceOp::sum, std::pair{rank(), 2.0}, StrategyExtended::OneReplica{0}),
                      plain_sum());
    CHECK_THROWS_WITH(strategy.reduce(ReduceOp::sum, own()), plain_sum());
  });
  CHECK(meetings == 0);
  expect_in_step();
}

TEST_CASE("the sum of a plain value on one replica is a copy with memory of its own, wherever it is wanted", "[E-7]") {
  const StrategyExtended extended{Strategy::current()};  // the default strategy has one replica
  const Variable variable = Strategy::current().create_variable({.name = "v"}, [] { return Tensor::scalar(0.f); });
  const auto row = [] { return Tensor::from({std::int64_t{3}}, {1}); };
  const std::pair<Tensor, IndexedSlices> value{own(), {Tensor::from({4.f}, {1, 1}), row(), {9, 1}}};
  const auto copies = {extended.reduce_to(ReduceOp::sum, value), extended.reduce_to(ReduceOp::sum, value, variable),
                       extended.reduce_to(ReduceOp::sum, value, StrategyExtended::OneReplica{0}).value(),
                       Strategy::current().reduce(ReduceOp::sum, value)};
  value.first.view().elements<float>()[0] = 8;
  value.second.values.view().elements<float>()[0] = 8;
  value.second.indices.view().elements<std::int64_t>()[0] = 8;
  for (const auto& [tensor, slices] : copies) {
    CHECK(tensor.to_vector<float>() == own().to_vector<float>());
    CHECK(slices.values.to_vector<float>() == std::vector<float>{4});
    CHECK(slices.indices.to_vector<std::int64_t>() == row().to_vector<std::int64_t>());
    CHECK(slices.dense_shape == Shape{9, 1});
  }
}

TEST_CASE("a plain tensor, or a nest of anything, is broadcast as replica 0's, and a mirrored value stays", "[E-29]") {
  const StrategyExtended extended{runtime().strategy()};
  const Mirrored<int> seven = runtime().strategy().same_on_all(7);
  const auto local = meetings_of([&] {
    const Mirrored<int> again = extended.broadcast_to(seven);
    CHECK(again.value() == 7);
  });
  CHECK(local == 0);
  const auto meetings = meetings_of([&] {
    const Mirrored<Tensor> tensor = extended.broadcast_to(own());
    CHECK(tensor.value().to_vector<float>() == std::vector<float>{1, 2});
    const auto nest = extended.broadcast_to(std::pair{own(), std::vector{rank(), 5}});
    CHECK(nest.value().first.to_vector<float>() == std::vector<float>{1, 2});
    CHECK(nest.value().second == std::vector{0, 5});
    const Mirrored<IndexedSlices> slices = extended.broadcast_to(
        IndexedSlices{Tensor::from({1.f + rank()}, {1, 1}), Tensor::from({std::int64_t{rank()}}, {1}), {9, 1}});
    CHECK(slices.value().values.to_vector<float>() == std::vector<float>{1});
    CHECK(slices.value().indices.to_vector<std::int64_t>() == std::vector<std::int64_t>{0});
  });
  CHECK(meetings == 3);
}

TEST_CASE("context comes first, then the destination, then whether there is such a reduction", "[E-1][E-2]") {
  Strategy strategy = runtime().make_strategy();
  Strategy other = runtime().make_strategy();
  const Variable variable = strategy.create_variable({.name = "v"}, [] { return Tensor::scalar(0.f); });
  const Mirrored<int> seven = strategy.same_on_all(7);
  strategy.run([&](ReplicaContext&) {
    const StrategyExtended extended{strategy};
    CHECK_THROWS_AS(extended.reduce_to(ReduceOp::mean, 1), ContextError);
    CHECK_THROWS_AS(extended.reduce_to(ReduceOp::sum, seven), ContextError);
    CHECK_THROWS_AS(extended.reduce_to(ReduceOp::mean, 1, variable), ContextError);
    CHECK_THROWS_AS(extended.reduce_to(ReduceOp::mean, 1, StrategyExtended::OneReplica{-1}), ContextError);
    CHECK_THROWS_AS(strategy.reduce(ReduceOp::mean, seven), ContextError);
    CHECK_THROWS_AS(extended.broadcast_to(seven), ContextError);
    CHECK_THROWS_AS(extended.broadcast_to(own()), ContextError);
    CHECK_THROWS_AS(StrategyExtended{other}.reduce_to(ReduceOp::mean, 1, variable), ContextError);
  });
  const Scope scope = other.scope();
  CHECK_THROWS_AS(StrategyExtended{strategy}.reduce_to(ReduceOp::mean, 1), ContextError);
  CHECK_THROWS_WITH(StrategyExtended{other}.reduce_to(ReduceOp::sum, seven, variable),
                    Catch::EndsWith("): variable 'v' was not created by " + other.name()));
  CHECK_THROWS_WITH(StrategyExtended{other}.reduce_to(ReduceOp::sum, 1, StrategyExtended::OneReplica{ranks()}),
                    Catch::Contains("): destination: replica " + std::to_string(ranks()) + " is not one of"));
}
