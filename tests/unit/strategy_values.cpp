// What goes into a strategy's methods and comes out of them, on one replica. Across ranks: tests/mpi.
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <type_traits>
#include <vector>

#include <catch2/catch.hpp>

#include <lockstep/core/base/error.hpp>
#include <lockstep/sync/strategy/strategy.hpp>
#include <lockstep/tf/extended/extended.hpp>

#include "strategy_support.hpp"

using namespace lockstep;
using lockstep::test::make;
using lockstep::test::Pairs;
using lockstep::test::TwoStrategies;

TEST_CASE("what goes in and comes out of run and merge_call keeps its type", "[A-36][B-20]") {
  TwoStrategies f;
  const Mirrored<double> alike = f.strategy.same_on_all(2.5);
  const auto result = f.strategy.run(
      [](ReplicaContext& context, int component, double same, const std::string& plain, std::vector<int> nest) {
        const int unwrapped = context.merge_call(
            [](Strategy& strategy, PerReplica<int> value) {
              return StrategyExtended{strategy}.reduce_to(ReduceOp::sum, value);
            },
            args(component));
        const int own = context.merge_call([](Strategy&, PerReplica<int> value) { return value; }, args(unwrapped));
        const std::tuple<int, std::vector<double>> nested = context.merge_call(
            [](Strategy&, PerReplica<int> a, std::vector<PerReplica<double>> b) {
              return std::tuple{a, b};
            },
            args(own, std::vector<double>{same}));
        const std::unique_ptr<int> moved = context.merge_call([](Strategy&) { return std::make_unique<int>(4); });
        context.merge_call([](Strategy&) {});
        return std::tuple{std::get<0>(nested), std::get<1>(nested).at(0), plain, nest.at(0), *moved};
      },
      args(PerReplica<int>{3}, alike, std::string{"text"}, std::vector<PerReplica<int>>{PerReplica<int>{9}}));
  CHECK(result.local() == std::tuple{3, 2.5, std::string{"text"}, 9, 4});
  CHECK(f.strategy.local_results(result).size() == 1);
  static_assert(std::is_same_v<decltype(f.strategy.run([](ReplicaContext&) {})), PerReplica<void>>);
}

TEST_CASE("on one replica the values that a merge function gets are the ones it was given, and variables themselves",
          "[B-34]") {
  TwoStrategies f;
  const MirroredVariable variable = make(f.strategy, "w");
  f.strategy.seal();
  const std::byte* const component = variable.local().data();
  const Tensor tensor = Tensor::from({1.f, 2.f}, {2});
  const std::byte* const elements = tensor.view().data();
  const Tensor returned =
      f.strategy
          .run([&](ReplicaContext& context) {
            return context.merge_call(
                [&](Strategy&, const PerReplica<Tensor>& plain, const std::map<std::string, PerReplica<Tensor>>& nest,
                    const MirroredVariable& handle, const std::vector<MirroredVariable>& handles) {
                  CHECK(plain.local().view().data() == elements);
                  CHECK(nest.at("a").local().view().data() == elements);
                  CHECK(handle.local().data() == component);
                  CHECK(handles.at(0).local().data() == component);
                  return plain;
                },
                args(tensor, std::map<std::string, Tensor>{{"a", tensor}}, variable, std::vector{variable}));
          })
          .local();
  CHECK(returned.view().data() == elements);
}

TEST_CASE("run keeps the value that a function returns by reference") {
  TwoStrategies f;
  const Tensor tensor = Tensor::scalar(2.f);
  const auto kept = f.strategy.run([&](ReplicaContext&) -> const Tensor& { return tensor; });
  STATIC_REQUIRE(std::is_same_v<decltype(kept), const PerReplica<Tensor>>);
  CHECK(kept.local().to_vector<float>() == std::vector<float>{2});
  int count = 3;
  const PerReplica<int> before = f.strategy.run([&](ReplicaContext&) -> int& { return count; });
  count = 4;
  CHECK(before.local() == 3);
}

TEST_CASE("a call keeps the value of an argument that a function returns by reference") {
  struct Argument {
    Argument() = default;
    Argument(const Argument&) = default;
    ~Argument() { value = 0; }
    volatile int value = 3;
  };
  TwoStrategies f;
  const auto same = [](ReplicaContext&, const Argument& argument) -> const Argument& { return argument; };
  CHECK(int{f.strategy.run(same, args(Argument{})).local().value} == 3);
  f.strategy.run([](ReplicaContext& context) {
    const auto merged = [](Strategy&, const PerReplica<Argument>& argument) -> const PerReplica<Argument>& {
      return argument;
    };
    CHECK(int{context.merge_call(merged, args(Argument{})).value} == 3);
  });
  const auto of_item = [](int, const Argument& argument) -> const Argument& { return argument; };
  const auto mapped = StrategyExtended{f.strategy}.map(std::vector{1}, of_item, args(Argument{}));
  CHECK(int{mapped.local().values().front().value} == 3);
}

TEST_CASE("agreements are as few as promised", "[B-24][E-11]") {
  TwoStrategies f;
  const auto cost = [&](const std::function<void()>& body) {
    const auto before = f.meetings();
    body();
    return f.meetings() - before;
  };
  CHECK(cost([&] { f.strategy.run([](ReplicaContext&) {}); }) == 1);
  CHECK(cost([&] { f.strategy.run([](ReplicaContext& c) { c.merge_call([](Strategy&) {}); }); }) == 2);
  CHECK(cost([&] {
          f.strategy.run([](ReplicaContext& c) { (void)c.all_reduce(ReduceOp::sum, std::vector{1., 2.}); });
        }) == 2);
  CHECK(cost([&] { (void)f.strategy.reduce(ReduceOp::sum, PerReplica<int>{1}); }) == 1);
  CHECK(cost([&] { (void)f.strategy.same_on_all(1); }) == 1);
  const MirroredVariable a = make(f.strategy, "a"), b = make(f.strategy, "b");
  CHECK(cost([&] { f.strategy.seal(); }) == 2);  // that all are here, and that all have the memory
  CHECK(cost([&] {
          const PerReplica<Tensor> value{Tensor::scalar(1.f)};
          (void)StrategyExtended{f.strategy}.batch_reduce_to(ReduceOp::sum, Pairs{{value, a}, {value, b}});
        }) == 1);
  CHECK(cost([&] { (void)StrategyExtended{f.strategy}.read_var(a); }) == 0);
}

TEST_CASE("refusals of reductions come before any agreement", "[A-59][E-8]") {
  TwoStrategies f;
  const MirroredVariable foreign = make(f.other, "w");
  const auto before = f.meetings();
  CHECK_THROWS_AS(f.strategy.reduce(ReduceOp::mean, PerReplica<int>{1}), InvalidArgument);
  const StrategyExtended extended{f.strategy};
  for (const int id : {-1, 1})
    CHECK_THROWS_WITH(
        extended.reduce_to(ReduceOp::sum, PerReplica<int>{1}, StrategyExtended::OneReplica{id}),
        Catch::StartsWith("reduce_to (strategy_values.cpp:") &&
            Catch::EndsWith("): destination: replica " + std::to_string(id) + " is not one of the 1 replicas, 0 to 0"));
  const PerReplica<Tensor> value{Tensor::scalar(1.f)};
  const auto not_own = Catch::EndsWith("): variable 'w' was not created by strategy 0");
  CHECK_THROWS_WITH(extended.reduce_to(ReduceOp::sum, value, foreign), not_own);
  CHECK_THROWS_WITH(extended.batch_reduce_to(ReduceOp::sum, Pairs{{value, foreign}}), not_own);
  CHECK_THROWS_WITH(extended.update(foreign, [](const Variable&) {}), not_own);
  CHECK_THROWS_WITH(extended.read_var(foreign), not_own);
  CHECK(f.meetings() == before);
}

TEST_CASE("a reduction leaves the value it was given alone, and gives one of its own") {
  TwoStrategies f;
  const Tensor mine = Tensor::from({1.f, 2.f}, {2});
  const Mirrored<Tensor> sum = StrategyExtended{f.strategy}.reduce_to(ReduceOp::sum, PerReplica<Tensor>{mine});
  CHECK(sum.value().view().data() != mine.view().data());
  CHECK(sum.value().to_vector<float>() == std::vector<float>{1, 2});
  CHECK(StrategyExtended{f.strategy}.reduce_to(ReduceOp::sum, PerReplica<int>{4}, StrategyExtended::OneReplica{0}) ==
        4);
}
