// Work that is dealt to the replicas item by item, and what waits for it.
#include <map>
#include <numeric>
#include <string>
#include <tuple>
#include <type_traits>
#include <vector>

#include <catch2/catch.hpp>

#include <lockstep/tf/extended/extended.hpp>

#include "core/control/meeting_point.hpp"
#include "core/device/device.hpp"
#include "support/ranks.hpp"
#include "sync/group/replica_group.hpp"
#include "sync/strategy/inside.hpp"

using namespace lockstep;
using namespace lockstep::test;

namespace {

/// 1, 2, 3, …
std::vector<int> items(int count) {
  std::vector<int> all(static_cast<std::size_t>(count));
  std::iota(all.begin(), all.end(), 1);
  return all;
}

/// Their sum.
int total(int count) {
  return count * (count + 1) / 2;
}

}  // namespace

TEST_CASE("replica r of N takes items r, r + N, and so on, in cross-replica context, and nothing is sent", "[H-13]") {
  Strategy& strategy = runtime().strategy();
  const int replicas = ranks();
  const auto before = inside(strategy).group().meeting().meetings();
  for (const int count : {0, 1, 2 * replicas + 1}) {
    CAPTURE(count);
    std::vector<int> expected;
    for (int item = rank(); item < count; item += replicas) expected.push_back(10 * (item + 1));
    const PerReplica<detail::MapOutput<int>> mapped = StrategyExtended{strategy}.map(items(count), [&](int item) {
      CHECK(Strategy::in_cross_replica_context());
      CHECK(&Strategy::current() == &strategy);
      return 10 * item;
    });
    CHECK(mapped.local().values() == expected);
    CHECK(mapped.local().items() == count);
  }
  CHECK(inside(strategy).group().meeting().meetings() == before);
  strategy.run([&](ReplicaContext&) {
    CHECK_THROWS_AS(StrategyExtended{strategy}.map(items(1), [](int item) { return item; }), ContextError);
  });
}

TEST_CASE("a mapped function gets what is mirrored as a plain value", "[H-14]") {
  Strategy& strategy = runtime().strategy();
  const Mirrored<int> mirrored = strategy.same_on_all(100);
  const auto add = [](int item, int one, const std::vector<int>& nest) { return item + one + nest.at(0); };
  const PerReplica<detail::MapOutput<int>> mapped =
      StrategyExtended{strategy}.map(items(ranks()), add, args(mirrored, std::vector{mirrored}));
  CHECK(mapped.local().values() == std::vector<int>{rank() + 201});
}

TEST_CASE("a mapped result is added up within its rank first, and its mean is over the items", "[H-15]") {
  Strategy& strategy = runtime().strategy();
  // None for some ranks; or as many for each; or one more for the first.
  for (const int count : {1, 4 * ranks(), 4 * ranks() + 1}) {
    CAPTURE(count);
    const auto mapped =
        StrategyExtended{strategy}.map(items(count), [](int item) { return static_cast<double>(item); });
    const auto before = inside(strategy).group().meeting().meetings();
    CHECK(strategy.reduce(ReduceOp::sum, mapped) == total(count));
    CHECK(inside(strategy).group().meeting().meetings() == before + 1);
    CHECK(StrategyExtended{strategy}.reduce_to(ReduceOp::mean, mapped).value() ==
          static_cast<double>(total(count)) / count);
    CHECK(inside(strategy).group().meeting().meetings() == before + 2);
  }
  const auto nothing = StrategyExtended{strategy}.map(items(0), [](int item) { return static_cast<double>(item); });
  CHECK(strategy.reduce(ReduceOp::sum, nothing) == 0);
  CHECK_THROWS_AS(strategy.reduce(ReduceOp::mean, nothing), InvalidArgument);
}

TEST_CASE("what was mapped is reduced to one replica, or to where a variable lives, as other values are", "[H-15]") {
  Strategy strategy = runtime().make_strategy();
  const MirroredVariable w = strategy.create_variable({.name = "w"}, [] { return Tensor::scalar(0.f); });
  const StrategyExtended extended{strategy};
  const int count = 2 * ranks() + 1;
  const auto mapped = extended.map(items(count), [](int item) { return std::pair{1.0 * item, 2 * item}; });
  const auto means = extended.map(items(count), [](int item) { return 1.0 * item; });
  const auto before = inside(strategy).group().meeting().meetings();
  for (int root = 0; root < ranks(); ++root) {
    const bool mine = rank() == root;
    CHECK(extended.reduce_to(ReduceOp::sum, mapped, StrategyExtended::OneReplica{root}) ==
          (mine ? std::optional{std::pair{1.0 * total(count), 2 * total(count)}} : std::nullopt));
    CHECK(extended.reduce_to(ReduceOp::mean, means, StrategyExtended::OneReplica{root}) ==
          (mine ? std::optional{ranks() + 1.0} : std::nullopt));
  }
  CHECK(extended.reduce_to(ReduceOp::sum, mapped, w).value() == std::pair{1.0 * total(count), 2 * total(count)});
  CHECK(extended.reduce_to(ReduceOp::mean, means, w).value() == ranks() + 1);
  CHECK(inside(strategy).group().meeting().meetings() == before + 2 * static_cast<std::uint64_t>(ranks()) + 2);

  CHECK_THROWS_AS(extended.reduce_to(ReduceOp::sum, mapped, StrategyExtended::OneReplica{ranks()}), InvalidArgument);
  CHECK_THROWS_AS(StrategyExtended{runtime().strategy()}.reduce_to(ReduceOp::sum, mapped, w), InvalidArgument);
  if (ranks() == 1) return;
  const auto odd = [&] {
    (void)extended.reduce_to(ReduceOp::sum, mapped, StrategyExtended::OneReplica{odd_one() ? 1 : 0});
  };
  CHECK_THAT(mismatch_of(odd), Catch::Contains("at reduce_to #") && Catch::Contains("with replica 0: sum") &&
                                   Catch::Contains("with replica 1: sum"));
  expect_in_step();
}

TEST_CASE("nests and tensors of either memory are mapped and reduced", "[H-15]") {
  Strategy& strategy = runtime().strategy();
  const int count = 3 * ranks() + 1;
  using Result = std::tuple<int, Tensor, std::vector<Tensor>>;
  const auto mapped = StrategyExtended{strategy}.map(items(count), [&](int item) {
    const float x = static_cast<float>(item);
    const Tensor on_host = Tensor::from({x, 2 * x}, {2});
    return Result{item, on_host, {Tensor::copy_of(on_host.view(), strategy.stream())}};
  });
  const float sum = static_cast<float>(total(count));
  const auto [number, on_host, on_device] = strategy.reduce(ReduceOp::sum, mapped);
  CHECK(number == total(count));
  CHECK(on_host.to_vector<float>() == std::vector<float>{sum, 2 * sum});
  REQUIRE(on_device.size() == 1);
  CHECK(on_device[0].device() == strategy.stream().kind());
  CHECK(on_device[0].to_vector<float>() == std::vector<float>{sum, 2 * sum});
  // The results that were reduced are as they were.
  CHECK(std::get<1>(mapped.local().values().at(0)).to_vector<float>().at(0) == static_cast<float>(rank() + 1));

  const auto means = StrategyExtended{strategy}.map(items(count), [&](int item) {
    return Tensor::copy_of(Tensor::scalar(static_cast<float>(item)).view(), strategy.stream());
  });
  CHECK(strategy.reduce(ReduceOp::mean, means).to_vector<float>() ==
        std::vector<float>{sum / static_cast<float>(count)});
}

TEST_CASE("mapped results that cannot be reduced are refused on every rank, before any agreement", "[H-15]") {
  Strategy& strategy = runtime().strategy();
  const StrategyExtended extended{strategy};
  const int replicas = ranks();
  const auto refused = [&](ReduceOp op, const auto& mapped, const std::string& told) {
    const auto before = inside(strategy).group().meeting().meetings();
    CHECK_THROWS_AS(extended.reduce_to(op, mapped), InvalidArgument);
    CHECK_THROWS_WITH(extended.reduce_to(op, mapped), Catch::Contains(told));
    CHECK(inside(strategy).group().meeting().meetings() == before);
  };
  refused(ReduceOp::mean, extended.map(items(replicas), [](int item) { return item; }), "mean");
  refused(ReduceOp::sum, extended.map(items(replicas - 1), [](int item) { return Tensor::scalar(item); }),
          "the map has " + std::to_string(replicas - 1) + " items for " + std::to_string(replicas) + " replicas");
  refused(
      ReduceOp::sum,
      extended.map(items(2 * replicas), [&](int item) { return Tensor::zeros(DType::f32, {item > replicas ? 2 : 1}); }),
      "the items of a map are f32[1] and f32[2]; expected the same shape and type");
  refused(ReduceOp::sum,
          extended.map(items(2 * replicas), [&](int item) { return std::vector<int>(item > replicas ? 2 : 1); }),
          "the items of a map have 1 and 2 leaves");
  refused(ReduceOp::sum,
          extended.map(items(2 * replicas),
                       [&](int item) {
                         return std::map<bool, int>{{item > replicas, 1}};
                       }),
          "the items of a map are arranged in {0: i32 } and in {1: i32 }; expected the same structure");
  refused(
      ReduceOp::sum,
      extended.map(items(replicas),
                   [](int) {
                     return IndexedSlices{Tensor::zeros(DType::f32, {1, 2}), Tensor::zeros(DType::i64, {1}), {3, 2}};
                   }),
      "slices");
}

TEST_CASE("ranks that mapped different numbers of items learn it, and not by a wrong mean", "[H-15]") {
  if (ranks() == 1) return;
  Strategy& strategy = runtime().strategy();
  const int count = ranks() + (rank() == 1 ? 1 : 0);
  const auto mapped = StrategyExtended{strategy}.map(items(count), [](int item) { return static_cast<double>(item); });
  CHECK_THROWS_AS(strategy.reduce(ReduceOp::mean, mapped), MismatchError);
  CHECK(strategy.reduce(ReduceOp::sum, PerReplica<int>{1}) == ranks());
}

TEST_CASE("synchronize returns when this rank's work is done, and asks no other rank", "[A-40]") {
  Strategy& strategy = runtime().strategy();
  const MirroredVariable variable =
      strategy.create_variable({.name = "w"}, [] { return Tensor::zeros(DType::f32, {64}); });
  strategy.seal();
  const auto before = inside(strategy).group().meeting().meetings();
  const auto after_some_work = [&] {
    variable.local().fill_zero(strategy.stream());
    return inside(strategy.stream()).record();
  };
  auto work = after_some_work();
  strategy.synchronize(strategy.same_on_all(1), PerReplica<int>{2}, variable);
  CHECK(work->done());
  work = after_some_work();
  strategy.synchronize(PerReplica<void>{});
  CHECK(work->done());
  work = after_some_work();
  strategy.synchronize();
  CHECK(work->done());
  CHECK(inside(strategy).group().meeting().meetings() == before + 1);  // of same_on_all
}

TEST_CASE("synchronize returns this rank's component of one value", "[H-19]") {
  Strategy& strategy = runtime().strategy();
  CHECK(strategy.synchronize(PerReplica<int>{rank()}) == rank());
  CHECK(strategy.synchronize(strategy.same_on_all(5)) == 5);
  const MirroredVariable variable = strategy.create_variable({.name = "w"}, [] { return Tensor::scalar(1.f); });
  CHECK(&inside(strategy.synchronize(variable)).state() == &inside(variable).state());
  STATIC_REQUIRE(std::is_void_v<decltype(strategy.synchronize(strategy.run([](ReplicaContext&) {})))>);
}

TEST_CASE("a variable is its own container, on every rank and in update too; other values stand for themselves",
          "[A-63][H-10]") {
  Strategy& strategy = runtime().strategy();
  const StrategyExtended extended{strategy};
  const MirroredVariable variable = strategy.create_variable({.name = "w"}, [] { return Tensor::scalar(1.f); });
  const SyncOnReadVariable counter = strategy.create_sync_on_read({.name = "c"}, [] { return Tensor::scalar(1.f); });
  strategy.seal();
  STATIC_REQUIRE(std::is_same_v<decltype(extended.value_container(counter)), SyncOnReadVariable>);
  const auto check = [&](const Variable& component) {
    const Variable container = extended.value_container(component);
    CHECK(&inside(container).state() == &inside(variable).state());
    CHECK(&inside(strategy.local_results(container).at(0)).state() == &inside(component).state());
  };
  check(variable);
  extended.update(variable, check);
  strategy.run([&](ReplicaContext& context) {
    check(variable);
    context.merge_call([&](Strategy&, const Variable& merged) { check(merged); }, args(Variable{variable}));
  });
  const PerReplica<int> result =
      strategy.run([](ReplicaContext& context) { return context.replica_id_in_sync_group(); });
  CHECK(extended.value_container(result).local() == rank());
  CHECK(extended.value_container(result.local()) == rank());
}
