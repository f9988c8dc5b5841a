// What the ranks bring to a merge_call or a reduction: other structures are told apart, other values are not.
#include <map>
#include <optional>
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

/// What a merge_call with `nest` says, which must not get to its function.
template <class T>
std::string mismatch_of_merging(const T& nest) {
  return mismatch_of([&] {
    runtime().strategy().run([&](ReplicaContext& context) {
      context.merge_call([](Strategy&, const auto&) { FAIL("merged"); }, args(nest));
    });
  });
}

}  // namespace

TEST_CASE("other lists, maps and missing values on one rank are no operands of one merge_call", "[B-27][B-29]") {
  if (ranks() == 1) return;
  CHECK_THAT(mismatch_of_merging(odd_one() ? std::vector{1} : std::vector{1, 2}),
             Catch::Contains("[1 i32]") && Catch::Contains("[2 i32]"));
  CHECK_THAT(mismatch_of_merging(std::map<std::string, float>{{odd_one() ? "bias" : "weight", 1}}),
             Catch::Contains("bias") && Catch::Contains("weight"));
  CHECK_THAT(mismatch_of_merging(odd_one() ? std::optional<int>{} : std::optional{1}), Catch::Contains("nothing"));
  CHECK_THAT(mismatch_of_merging(std::vector{std::pair{1, std::vector<float>(odd_one() ? 3 : 2)}}),
             Catch::Contains("[3 f32]"));
  CHECK_FALSE(mismatch_of_merging(Tensor::zeros(odd_one() ? DType::f64 : DType::f32, {1})).empty());
  CHECK(runtime().strategy().reduce(ReduceOp::sum, PerReplica<int>{1}) == ranks());
}

TEST_CASE("a batch of another length, order, shape or type on one rank is a mismatch that shows both", "[A-60]") {
  if (ranks() == 1) return;
  Strategy strategy = runtime().make_strategy();
  const Variable a = strategy.create_variable({.name = "a"}, [] { return Tensor::zeros(DType::f32, {2}); });
  const Variable b = strategy.create_variable({.name = "b"}, [] { return Tensor::zeros(DType::f64, {1}); });
  const PerReplica<Tensor> for_a{Tensor::zeros(DType::f32, {2})}, for_b{Tensor::zeros(DType::f64, {1})},
      wide{Tensor::zeros(DType::f32, {3})};
  using Batch = std::vector<std::pair<PerReplica<Tensor>, Variable>>;
  const auto mismatch = [&](const Batch& odd) {
    const Batch usual{{for_a, a}, {for_b, b}};
    return mismatch_of(
        [&] { (void)StrategyExtended{strategy}.batch_reduce_to(ReduceOp::sum, odd_one() ? odd : usual); });
  };
  const auto usual = Catch::Contains("with sum of f32[2], f64[1]");
  CHECK_THAT(mismatch({{for_a, a}}),
             usual && Catch::Contains("at batch_reduce_to #") && Catch::Contains("with sum of f32[2] for 'a';"));
  CHECK_THAT(mismatch({}), usual);
  CHECK_THAT(mismatch({{for_b, b}, {for_a, a}}), usual && Catch::Contains("f64[1], f32[2]"));
  CHECK_THAT(mismatch({{wide, a}, {for_b, b}}), usual && Catch::Contains("f32[3], f64[1]"));
  CHECK(mismatch({{for_a, a}, {for_b, b}}).empty());
}

TEST_CASE("values for other variables on one rank are no operands of one reduction", "[A-60]") {
  if (ranks() == 1) return;
  Strategy strategy = runtime().make_strategy();
  const auto make = [&](const char* name) {
    return strategy.create_variable({.name = name}, [] { return Tensor::scalar(0.f); });
  };
  const MirroredVariable a = make("a"), b = make("b");
  strategy.seal();
  const bool other = odd_one();
  const PerReplica<Tensor> value{Tensor::scalar(1.f)};
  const std::string one =
      mismatch_of([&] { (void)StrategyExtended{strategy}.reduce_to(ReduceOp::sum, value, other ? b : a); });
  CHECK_THAT(one, Catch::Contains("for 'a'") && Catch::Contains("for 'b'"));
  using Pairs = std::vector<std::pair<PerReplica<Tensor>, Variable>>;
  const Pairs pairs = other ? Pairs{{value, b}, {value, a}} : Pairs{{value, a}, {value, b}};
  CHECK_THAT(mismatch_of([&] { (void)StrategyExtended{strategy}.batch_reduce_to(ReduceOp::sum, pairs); }),
             Catch::Contains("for 'a' for 'b'") && Catch::Contains("for 'b' for 'a'"));
}

TEST_CASE("variables of one name are told apart, wherever ranks compare them", "[A-60]") {
  if (ranks() == 1) return;
  Strategy strategy = runtime().make_strategy(), other_strategy = runtime().make_strategy();
  const auto make = [](Strategy& where) {
    return where.create_variable({.name = "w", .aggregation = Variable::Aggregation::sum},
                                 [] { return Tensor::scalar(1.f); });
  };
  const MirroredVariable first = make(strategy), second = make(strategy), foreign = make(other_strategy);
  strategy.seal();
  other_strategy.seal();
  const MirroredVariable& mine = odd_one() ? second : first;
  const auto check_shows = [](const std::string& message, const std::string& one, const std::string& other) {
    CHECK_THAT(message, Catch::Contains(one) && Catch::Contains(other));
  };
  const std::string own = " of " + strategy.name();
  check_shows(mismatch_of_merging(mine), "with variable 'w'" + own, "with variable 'w_1'" + own);
  check_shows(mismatch_of_merging(odd_one() ? foreign : first), "with variable 'w'" + own,
              "with variable 'w' of " + other_strategy.name());
  check_shows(mismatch_of([&] { strategy.run([&](ReplicaContext&) { mine.assign(Tensor::scalar(2.f)); }); }),
              "with variable 'w'" + own, "with variable 'w_1'" + own);
  const PerReplica<Tensor> value{Tensor::scalar(1.f)};
  check_shows(mismatch_of([&] { (void)StrategyExtended{strategy}.reduce_to(ReduceOp::sum, value, mine); }),
              "sum of f32[] for 'w'", "sum of f32[] for 'w_1'");
  using Pairs = std::vector<std::pair<PerReplica<Tensor>, Variable>>;
  const Pairs pairs = odd_one() ? Pairs{{value, second}, {value, first}} : Pairs{{value, first}, {value, second}};
  check_shows(mismatch_of([&] { (void)StrategyExtended{strategy}.batch_reduce_to(ReduceOp::sum, pairs); }),
              "for 'w' for 'w_1'", "for 'w_1' for 'w'");
  expect_in_step();
}

TEST_CASE("maps whose keys are neither text nor whole numbers are told apart by them", "[B-29]") {
  if (ranks() == 1) return;
  Strategy strategy = runtime().make_strategy();
  enum class Color { red, blue };
  const bool other = odd_one();
  const std::map<Color, int> colors{{other ? Color::blue : Color::red, 1}};
  const std::map<double, int> numbers{{other ? 0.5 : 0.25, 1}};
  const std::map<std::pair<int, int>, int> places{{{1, other ? 2 : 3}, 1}};
  CHECK_FALSE(mismatch_of([&] { (void)strategy.reduce(ReduceOp::sum, PerReplica{colors}); }).empty());
  CHECK_FALSE(mismatch_of([&] { (void)strategy.reduce(ReduceOp::sum, PerReplica{numbers}); }).empty());
  CHECK_FALSE(mismatch_of([&] { (void)strategy.reduce(ReduceOp::sum, PerReplica{places}); }).empty());
  CHECK(strategy.reduce(ReduceOp::sum, PerReplica{std::map<double, int>{{0.5, rank()}}}).at(0.5) ==
        ranks() * (ranks() - 1) / 2);
}

TEST_CASE("whether an optional result holds a value may differ by rank", "[B-13]") {
  const auto sum = runtime().strategy().run([](ReplicaContext& context) {
    return context.merge_call(
        [](Strategy& strategy, const PerReplica<int>& value) {
          return StrategyExtended{strategy}.reduce_to(ReduceOp::sum, value, StrategyExtended::OneReplica{0});
        },
        args(rank() + 1));
  });
  CHECK(sum.local() == (rank() == 0 ? std::optional{triangle()} : std::nullopt));
}

TEST_CASE("a run's results are of one structure on every rank, or a mismatch at its end", "[B-13]") {
  if (ranks() == 1) return;
  Strategy& strategy = runtime().strategy();
  const auto mismatch_of_returning = [&](const auto& result) {
    return mismatch_of([&] { (void)strategy.run([&](ReplicaContext&) { return result; }); });
  };
  CHECK_THAT(mismatch_of_returning(std::vector<float>(odd_one() ? 3 : 2)),
             Catch::StartsWith("replica " + std::to_string(last()) + " (") && Catch::Contains("has finished ") &&
                 Catch::Contains(" and returned [3 f32]; replica") && Catch::EndsWith(" and returned [2 f32]"));
  CHECK_THAT(mismatch_of_returning(std::map<std::string, int>{{odd_one() ? "loss" : "hits", 1}}),
             Catch::Contains("returned {loss: i32 }") && Catch::Contains("returned {hits: i32 }"));
  // What may differ: values, shapes, and what is in a string.
  const auto result = std::tuple{rank(), Tensor::zeros(DType::f32, {rank()}), std::string(10, odd_one() ? 'a' : 'b')};
  CHECK(mismatch_of_returning(result).empty());
  expect_in_step();
}

TEST_CASE("a zero is a value like any other, whoever brings it", "[E-4]") {
  Strategy& strategy = runtime().strategy();
  const auto before = inside(strategy).group().meeting().meetings();
  CHECK(strategy.reduce(ReduceOp::sum, PerReplica<int>{odd_one() ? 0 : 5}) == 5 * (ranks() - 1));
  CHECK(strategy.reduce(ReduceOp::sum, PerReplica<int>{odd_one() ? 5 : 0}) == 5);
  CHECK(strategy.reduce(ReduceOp::mean, PerReplica<double>{0}) == 0);
  CHECK(StrategyExtended{strategy}.broadcast_to(PerReplica<int>{rank() == 0 ? 0 : 5}).value() == 0);
  CHECK(inside(strategy).group().meeting().meetings() - before == 4);  // none of them was skipped
}

TEST_CASE("another structure, shape, order or number of all_reduces on one rank is a mismatch", "[K-2]") {
  if (ranks() == 1) return;
  const auto mismatch = [](const auto& step) {
    return mismatch_of([&] { runtime().strategy().run([&](ReplicaContext& context) { step(context); }); });
  };
  const auto structure = mismatch(
      [](ReplicaContext& context) { (void)context.all_reduce(ReduceOp::sum, std::vector<double>(odd_one() ? 2 : 1)); });
  CHECK_THAT(structure, Catch::Contains("in [2 f64]") && Catch::Contains("in [1 f64]"));
  const auto shape = mismatch([](ReplicaContext& context) {
    (void)context.all_reduce(ReduceOp::sum, Tensor::zeros(DType::f32, {odd_one() ? 3 : 2}));
  });
  CHECK_THAT(shape, Catch::Contains("sum of f32[3]") && Catch::Contains("sum of f32[2]"));
  const auto order = mismatch([](ReplicaContext& context) {
    const auto one = [&] { (void)context.all_reduce(ReduceOp::sum, 1.f); };
    const auto other = [&] { (void)context.all_reduce(ReduceOp::sum, 1.0); };
    if (odd_one()) other();
    one();
    if (!odd_one()) other();
  });
  CHECK_THAT(order, Catch::StartsWith("replica " + std::to_string(last()) + " (") &&
                        Catch::Contains("all_reduce #1 (operands.cpp:"));
  const auto number = mismatch([](ReplicaContext& context) {
    if (!odd_one()) (void)context.all_reduce(ReduceOp::sum, 1.0);
  });
  CHECK_THAT(number, Catch::Contains("has finished ") && Catch::Contains("all_reduce #1 (operands.cpp:"));
  const auto broadcast = mismatch_of([&] {
    (void)StrategyExtended{runtime().strategy()}.broadcast_to(Tensor::zeros(DType::f32, {odd_one() ? 3 : 2}));
  });
  CHECK_THAT(broadcast, Catch::Contains("broadcast #") && Catch::Contains(" (operands.cpp:") &&
                            Catch::Contains("with f32[3]") && Catch::Contains("with f32[2]"));
  expect_in_step();
}

TEST_CASE("the all_reduce that tf.distribute documents", "[K-6][K-8]") {
  using Nest = std::pair<double, std::vector<double>>;
  if (ranks() != 2) return;
  runtime().strategy().run([](ReplicaContext& context) {
    const Nest mine = rank() == 0 ? Nest{1, {40, 1}} : Nest{3, {2, 98}};
    CHECK(context.all_reduce(ReduceOp::sum, mine) == Nest{4, {42, 99}});
    CHECK(context.all_reduce(ReduceOp::mean, mine) == Nest{2, {21, 49.5}});
    // A mean of integers would be no integer: refused, not rounded.
    CHECK_THROWS_AS(context.all_reduce(ReduceOp::mean, std::vector{1, 98}), InvalidArgument);
    CHECK_THROWS_WITH(context.all_reduce(ReduceOp::mean, 1), Catch::StartsWith("all_reduce (operands.cpp:"));
  });
}
