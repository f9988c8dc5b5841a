// Which tensors travel together, and that no bit of a sum depends on it.
#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include <lockstep/core/base/error.hpp>

#include "core/comm/backends.hpp"
#include "reduce_support.hpp"
#include "support/reductions_of.hpp"
#include "support/thread_communicator.hpp"
#include "sync/reduce/messages.hpp"
#include "sync/reduce/reduction_choice.hpp"
#include "sync/reduce/reductions.hpp"

using namespace lockstep;
using namespace lockstep::test;
using lockstep::detail::Bucket;
using lockstep::detail::messages_of;
using lockstep::detail::plan_buckets;

namespace {

/// Elements [first, first + count) of one tensor.
struct Run {
  std::size_t tensor;
  std::int64_t first;
  std::int64_t count;

  bool operator==(const Run&) const = default;
};

using Plan = std::vector<std::vector<Run>>;

/// What travels in each message, of tensors of f32 with so many elements.
Plan plan(const Packing& packing, const std::vector<std::int64_t>& counts) {
  std::vector<Tensor> tensors;
  std::vector<TensorView> views;
  for (const std::int64_t count : counts)
    views.push_back(tensors.emplace_back(Tensor::zeros(DType::f32, {count})).view());
  Plan plan;
  for (const std::vector<TensorView>& parts : messages_of(packing, views)) {
    plan.emplace_back();
    for (const TensorView& part : parts) {
      const auto holds = [&](const TensorView& each) {
        return part.data() >= each.data() && part.data() < each.data() + each.bytes();
      };
      const auto tensor = std::ranges::find_if(views, holds);
      const auto first = (part.data() - tensor->data()) / static_cast<std::int64_t>(sizeof(float));
      plan.back().push_back({static_cast<std::size_t>(tensor - views.begin()), first, part.count()});
    }
  }
  return plan;
}

}  // namespace

TEST_CASE("packs are of equal length, cut through tensors, and the last takes what is left over", "[E-22]") {
  CHECK(plan(ReductionOptions::into_packs(1), {3, 4, 4}) == Plan{{{0, 0, 3}, {1, 0, 4}, {2, 0, 4}}});
  CHECK(plan(ReductionOptions::into_packs(2), {3, 4, 4}) == Plan{{{0, 0, 3}, {1, 0, 2}}, {{1, 2, 2}, {2, 0, 4}}});
  CHECK(plan(ReductionOptions::into_packs(3), {3, 0, 8}) == Plan{{{0, 0, 3}}, {{2, 0, 3}}, {{2, 3, 5}}});
  CHECK(plan(ReductionOptions::into_packs(3), {11}) == Plan{{{0, 0, 3}}, {{0, 3, 3}}, {{0, 6, 5}}});
  // Fewer elements than packs: all are the rest.
  CHECK(plan(ReductionOptions::into_packs(5), {1, 2}) == Plan{{{0, 0, 1}, {1, 0, 2}}});
  CHECK(plan(ReductionOptions::into_packs(2), {0, 0}).empty());
  CHECK(plan(ReductionOptions::into_packs(1), {}).empty());
}

TEST_CASE("neighbouring small tensors travel in groups, every other one by itself", "[E-22]") {
  const Packing pairs = ReductionOptions::group_small(4 * sizeof(float), 2);
  CHECK(plan(pairs, {4, 1, 2}) == Plan{{{0, 0, 4}, {1, 0, 1}}, {{2, 0, 2}}});
  CHECK(plan(pairs, {1, 5, 2, 3}) == Plan{{{0, 0, 1}}, {{1, 0, 5}}, {{2, 0, 2}, {3, 0, 3}}});
  CHECK(plan(pairs, {1, 0, 2}) == Plan{{{0, 0, 1}, {2, 0, 2}}});
  CHECK(plan(pairs, {0, 0}).empty());
  const Packing many = ReductionOptions::group_small(std::numeric_limits<std::int64_t>::max(), 1000);
  CHECK(plan(many, {1, 5, 2}) == Plan{{{0, 0, 1}, {1, 0, 5}, {2, 0, 2}}});
}

TEST_CASE("unpacked tensors travel one by one", "[E-22]") {
  CHECK(plan(ReductionOptions::unpacked(), {4, 0, 1, 2}) == Plan{{{0, 0, 4}}, {{2, 0, 1}}, {{3, 0, 2}}});
}

TEST_CASE("gradients make buckets of whole neighbours, a small one first, and those of a packing that was asked for") {
  constexpr std::int64_t kilo = 1024 / sizeof(float), mega = 1024 * kilo;
  using Buckets = std::vector<Bucket>;
  const auto buckets = [](const Packing& packing, const std::vector<std::int64_t>& counts,
                          std::int64_t enough_bytes = 4 << 20) {
    return plan_buckets(packing, counts, sizeof(float), enough_bytes);
  };
  CHECK(buckets({}, {100 * kilo, 156 * kilo, mega, 2 * mega, mega, 9 * mega, 1}) ==
        Buckets{{0, 256 * kilo, 2},
                {256 * kilo, 4 * mega, 5},
                {256 * kilo + 4 * mega, 9 * mega, 6},
                {256 * kilo + 13 * mega, 1, 7}});
  CHECK(buckets({}, {100 * kilo, 156 * kilo, mega, 200 * kilo, 70 * kilo, 5}, 256 << 10) ==
        Buckets{
            {0, 256 * kilo, 2}, {256 * kilo, mega, 3}, {256 * kilo + mega, 270 * kilo, 5}, {526 * kilo + mega, 5, 6}});
  CHECK(buckets({}, {1, 2}) == Buckets{{0, 3, 2}});
  CHECK(buckets({}, {0, mega, 0, 3, 0}) == Buckets{{0, mega, 2}, {mega, 3, 5}});
  CHECK(buckets({}, {0, 0}).empty());
  CHECK(buckets(ReductionOptions::into_packs(3), {3, 0, 8}) == Buckets{{0, 3, 1}, {3, 3, 3}, {6, 5, 3}});
  CHECK(buckets(ReductionOptions::unpacked(), {4, 0, 1, 2, 0}) == Buckets{{0, 4, 1}, {4, 1, 3}, {5, 2, 5}});
}

TEST_CASE("packing that makes no sense is refused", "[E-23]") {
  const auto refusal = [](const Packing& packing) -> std::string {
    try {
      require_valid({.packing = packing});
    } catch (const InvalidArgument& error) {
      return error.what();
    }
    return {};
  };
  for (const int packs : {0, -1})
    CHECK(refusal(ReductionOptions::into_packs(packs)) ==
          "`num_packs` must be greater than zero, not " + std::to_string(packs));
  const std::string both = "`small_tensor_bytes` and `max_group` should both be greater than zero, not ";
  CHECK(refusal(ReductionOptions::group_small(0, 2)) == both + "0 and 2");
  CHECK(refusal(ReductionOptions::group_small(10, -1)) == both + "10 and -1");
  for (const Packing& good :
       {Packing{}, ReductionOptions::into_packs(7), ReductionOptions::unpacked(), ReductionOptions::group_small(1, 1)})
    CHECK(refusal(good).empty());
  const auto communicator = make_local_communicator();
  CHECK_THROWS_AS(reductions_of(*communicator, {.packing = ReductionOptions::into_packs(0)}, std::vector{0}),
                  InvalidArgument);
}

TEST_CASE("however tensors are packed, every kind that keeps the fixed order gives the bits of the fixed tree") {
  constexpr int ranks = 3;
  // Large enough to be cut into slices, and small; of two types, in turns; none lies next to another.
  const auto large = make_parts<float>(ranks, 30'000), small = make_parts<float>(ranks, 5);
  const auto doubles = make_parts<double>(ranks, 100);
  const std::vector<Packing> packings{ReductionOptions::into_packs(1), ReductionOptions::into_packs(2),
                                      ReductionOptions::into_packs(7), ReductionOptions::group_small(1000, 2),
                                      ReductionOptions::unpacked()};
  for (const ReductionOptions::Kind kind : {ReductionOptions::Kind::fixed_order, ReductionOptions::Kind::to_one_rank,
                                            ReductionOptions::Kind::hierarchical}) {
    for (const Packing& packing : packings) {
      CAPTURE(describe({.kind = kind, .packing = packing}));
      std::vector<int> right(ranks, 0);
      on_threads(ranks, [&](ThreadCommunicator& communicator) {
        const auto ops = reductions_of(communicator, {.kind = kind, .packing = packing}, std::vector<int>(ranks, 0));
        const auto rank = static_cast<std::size_t>(communicator.rank());
        const std::vector<Tensor> tensors{tensor_of(small[rank]), tensor_of(doubles[rank]), tensor_of(large[rank]),
                                          tensor_of(small[rank])};
        std::vector<TensorView> views;
        for (const Tensor& tensor : tensors) views.push_back(tensor.view());
        ops->all_reduce(ReduceOp::mean, views);
        right[rank] += same_bits(tensors[0].to_vector<float>(), tree(small, ranks));
        right[rank] += same_bits(tensors[1].to_vector<double>(), tree(doubles, ranks));
        right[rank] += same_bits(tensors[2].to_vector<float>(), tree(large, ranks));
        right[rank] += same_bits(tensors[3].to_vector<float>(), tree(small, ranks));
        ops->broadcast(views, 2);
      });
      CHECK(right == std::vector<int>(ranks, 4));
    }
  }
}

TEST_CASE("each message is one exchange", "[E-22]") {
  const auto values = make_parts<float>(2, 20'000);
  const auto calls_with = [&](const Packing& packing) {
    std::vector<Call> calls;
    on_threads(
        2,
        [&](ThreadCommunicator& communicator) {
          const auto ops = in_backend_order(communicator, packing);
          const Tensor a = tensor_of(values[0]), b = Tensor::zeros(DType::f32, {10}),
                       c = Tensor::zeros(DType::f32, {20});
          ops->all_reduce(ReduceOp::sum, std::vector{a.view(), b.view(), c.view()});
        },
        &calls);
    std::vector<std::string> whats;
    for (const Call& call : calls) whats.push_back(call.what);
    return whats;
  };
  using Calls = std::vector<std::string>;
  CHECK(calls_with(Packing{}) == Calls{"all_reduce 80120"});
  CHECK(calls_with(ReductionOptions::into_packs(4)) ==
        Calls{"all_reduce 20028", "all_reduce 20028", "all_reduce 20028", "all_reduce 20036"});
  CHECK(calls_with(ReductionOptions::group_small(80, 5)) == Calls{"all_reduce 80000", "all_reduce 120"});
  CHECK(calls_with(ReductionOptions::unpacked()) == Calls{"all_reduce 80000", "all_reduce 40", "all_reduce 80"});
}
