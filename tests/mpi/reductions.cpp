// What the user may choose of reductions: a strategy's own kind and packing, agreed on when it is made; and the element
// types that they take.
#include "sync/reduce/reductions.hpp"

#include <algorithm>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include <lockstep/core/base/error.hpp>
#include <lockstep/tf/extended/extended.hpp>

#include "core/base/element_type.hpp"
#include "core/control/meeting_point.hpp"
#include "support/ranks.hpp"
#include "sync/group/replica_group.hpp"
#include "sync/reduce/reduction_choice.hpp"
#include "sync/strategy/inside.hpp"

using namespace lockstep;
using namespace lockstep::test;

namespace {

const std::vector<ReductionOptions::Kind> all_kinds{
    ReductionOptions::Kind::automatic, ReductionOptions::Kind::fixed_order, ReductionOptions::Kind::backend_order,
    ReductionOptions::Kind::hierarchical, ReductionOptions::Kind::to_one_rank};

/// `count` times rank + 1, on this rank's device.
template <class T>
PerReplica<Tensor> mine(Strategy& strategy, std::int64_t count) {
  const std::vector<T> values(static_cast<std::size_t>(count), static_cast<T>(static_cast<float>(rank() + 1)));
  return PerReplica{Tensor::copy_of(Tensor::from(values, {count}).view(), strategy.stream())};
}

template <class T>
void check_all_equal(const Tensor& tensor, float expected) {
  int wrong = 0;
  for (const T value : tensor.to_vector<T>()) wrong += static_cast<float>(value) != expected;
  CHECK(wrong == 0);
}

template <class T>
void check_sums(Strategy& strategy, std::int64_t count) {
  const auto value = mine<T>(strategy, count);
  check_all_equal<T>(strategy.reduce(ReduceOp::sum, value), static_cast<float>(triangle()));
  if (is_floating_point(detail::dtype_of<T>))
    check_all_equal<T>(strategy.reduce(ReduceOp::mean, value), static_cast<float>(ranks() + 1) / 2);
  const int root = last();
  const auto at_root = StrategyExtended{strategy}.reduce_to(ReduceOp::sum, value, StrategyExtended::OneReplica{root});
  CHECK(at_root.has_value() == (rank() == root));
  if (at_root) check_all_equal<T>(*at_root, static_cast<float>(triangle()));
  check_all_equal<T>(StrategyExtended{strategy}.broadcast_to(value).value(), 1);
}

}  // namespace

TEST_CASE("every kind of reduction gives exact sums of every element type, small and large", "[E-13][E-14]") {
  for (const ReductionOptions::Kind kind : all_kinds) {
    CAPTURE(name_of(kind));
    Strategy strategy = runtime().make_strategy({.kind = kind});
    for (const std::int64_t count : {3, 40'000}) {
      check_sums<float>(strategy, count);
      check_sums<double>(strategy, count);
      check_sums<Half>(strategy, count);
      check_sums<BFloat16>(strategy, count);
      check_sums<std::int32_t>(strategy, count);
      check_sums<std::int64_t>(strategy, count);
      check_sums<std::uint8_t>(strategy, count);
    }
  }
}

TEST_CASE("a strategy trains with the reductions that it was made with", "[E-14]") {
  for (const ReductionOptions::Kind kind : all_kinds) {
    CAPTURE(name_of(kind));
    Strategy strategy = runtime().make_strategy({.kind = kind, .packing = ReductionOptions::into_packs(2)});
    const auto of_rank = static_cast<float>(rank());
    const MirroredVariable weight = strategy.create_variable({.name = "weight"}, [&] {
      return Tensor::from({of_rank + 1, 2.f, 3.f}, {3});
    });
    strategy.run([&](ReplicaContext& context) {
      const auto gradient = static_cast<float>(context.replica_id_in_sync_group() + 1);
      const auto sum = context.all_reduce(ReduceOp::sum, std::vector<float>{gradient, 2 * gradient});
      CHECK(sum == std::vector<float>{static_cast<float>(triangle()), static_cast<float>(2 * triangle())});
    });
    CHECK(weight.local().to_vector<float>() == std::vector<float>{1, 2, 3});
  }
}

TEST_CASE("the user's function accumulates, on one rank, and all get what it made", "[E-14][E-17]") {
  int calls = 0;
  Strategy largest =
      runtime().make_strategy({.kind = ReductionOptions::Kind::to_one_rank,
                               .accumulate = [&](std::span<const TensorView> parts, const TensorView& result, Stream&) {
                                 ++calls;
                                 CHECK(parts.size() == static_cast<std::size_t>(ranks()));
                                 for (std::size_t i = 0; i < static_cast<std::size_t>(result.count()); ++i) {
                                   float most = parts[0].elements<float>()[i];
                                   for (const TensorView& part : parts)
                                     most = std::max(most, part.elements<float>()[i]);
                                   result.elements<float>()[i] = most;
                                 }
                               }});
  const auto number = static_cast<float>(rank());
  const Tensor here = Tensor::from({number, -number}, {2});
  const auto both = largest.reduce(ReduceOp::sum, PerReplica<Tensor>{here});
  CHECK(both.to_vector<float>() == std::vector<float>{static_cast<float>(ranks() - 1), 0});
  CHECK(calls == (rank() == 0 ? 1 : 0));
  const auto mean = largest.reduce(ReduceOp::mean, PerReplica<Tensor>{here});
  CHECK(mean.to_vector<float>()[0] == static_cast<float>(ranks() - 1) / static_cast<float>(ranks()));
}

TEST_CASE("however tensors are packed, a batch is reduced to the same numbers", "[E-22]") {
  for (const Packing& packing :
       {ReductionOptions::into_packs(3), ReductionOptions::group_small(16, 2), ReductionOptions::unpacked()}) {
    CAPTURE(describe({.packing = packing}));
    Strategy strategy = runtime().make_strategy({.packing = packing});
    std::vector<Tensor> values;
    for (const std::int64_t count : {1, 20'000, 2, 0, 3}) values.push_back(mine<float>(strategy, count).local());
    const auto sums = strategy.reduce(ReduceOp::sum, PerReplica{values});
    for (const Tensor& sum : sums) check_all_equal<float>(sum, static_cast<float>(triangle()));
  }
}

TEST_CASE("a batch of small and large tensors is reduced to the same numbers, each by its size", "[E-32]") {
  Strategy strategy = runtime().make_strategy(
      {.kind = ReductionOptions::Kind::backend_order,
       .smaller = {{.up_to_bytes = 4, .kind = ReductionOptions::Kind::to_one_rank},
                   {12, ReductionOptions::Kind::fixed_order, ReductionOptions::unpacked()},
                   {4096, ReductionOptions::Kind::hierarchical, ReductionOptions::into_packs(2)}}});
  std::vector<Tensor> values;
  for (const std::int64_t count : {1, 20'000, 2, 0, 3, 1'000}) values.push_back(mine<float>(strategy, count).local());
  const auto sums = strategy.reduce(ReduceOp::sum, PerReplica{values});
  for (const Tensor& sum : sums) check_all_equal<float>(sum, static_cast<float>(triangle()));
}

TEST_CASE("reductions that differ on one rank are a mismatch that shows both", "[E-12][E-14][E-32]") {
  if (ranks() == 1) return;
  const auto mismatch = [&](const ReductionOptions& odd) {
    return mismatch_of([&] { (void)runtime().make_strategy(odd_one() ? odd : ReductionOptions{}); });
  };
  CHECK_THAT(mismatch({.kind = ReductionOptions::Kind::fixed_order}),
             Catch::Contains("automatic reductions") && Catch::Contains("fixed-order reductions"));
  CHECK_THAT(mismatch({.packing = ReductionOptions::into_packs(2)}),
             Catch::Contains("automatic reductions in 2 packs"));
  CHECK_THAT(mismatch({.smaller = {{64, ReductionOptions::Kind::fixed_order, {}}}}),
             Catch::Contains("automatic reductions, up to 64 bytes fixed-order reductions"));
  CHECK(mismatch({}).empty());
}

TEST_CASE("reductions that make no sense are refused before any agreement", "[E-23]") {
  const auto before = inside(runtime().strategy()).group().meeting().meetings();
  CHECK_THROWS_AS(runtime().make_strategy({.packing = ReductionOptions::into_packs(0)}), InvalidArgument);
  CHECK_THROWS_AS(runtime().make_strategy({.packing = ReductionOptions::group_small(1, 0)}), InvalidArgument);
  CHECK(inside(runtime().strategy()).group().meeting().meetings() == before);
}

TEST_CASE("16-bit sums are rounded once, wherever the ranks are") {
  if (ranks() < 3) return;
  // 1 and two halves of the step behind it: rounded in between, either would be lost.
  const auto part = [](float half_step) { return rank() == 0 ? 1.f : rank() < 3 ? half_step : 0.f; };
  for (const ReductionOptions::Kind kind : {ReductionOptions::Kind::fixed_order, ReductionOptions::Kind::hierarchical,
                                            ReductionOptions::Kind::to_one_rank}) {
    CAPTURE(name_of(kind));
    Strategy strategy = runtime().make_strategy({.kind = kind});
    const auto sum_of = [&](auto number) {
      return strategy.reduce(ReduceOp::sum, PerReplica{Tensor::from({number}, {1})});
    };
    CHECK(static_cast<float>(sum_of(Half{part(0x1p-11f)}).to_vector<Half>()[0]) == 1 + 0x1p-10f);
    CHECK(static_cast<float>(sum_of(BFloat16{part(0x1p-8f)}).to_vector<BFloat16>()[0]) == 1 + 0x1p-7f);
  }
}
