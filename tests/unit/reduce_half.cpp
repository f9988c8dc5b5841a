// Sums of 16-bit floats: in f32, in the fixed tree, and rounded once.
#include <cmath>
#include <vector>

#include <catch2/catch.hpp>

#include <lockstep/core/base/error.hpp>
#include <lockstep/sync/reduce/fixed_order.hpp>

#include "reduce_support.hpp"
#include "support/reductions_of.hpp"
#include "support/thread_communicator.hpp"
#include "sync/reduce/arithmetic.hpp"
#include "sync/reduce/fixed_order_sum.hpp"
#include "sync/reduce/reductions.hpp"

using namespace lockstep;
using namespace lockstep::test;

namespace {

template <class T>
std::vector<T> numbers(const std::vector<float>& values) {
  std::vector<T> made;
  for (const float value : values) made.push_back(T{value});
  return made;
}

/// What rank 0 has after an all-reduce of `parts`, if all have the same; else nothing.
template <class T>
std::vector<T> reduced(const std::vector<std::vector<T>>& parts, ReductionOptions::Kind kind, ReduceOp op) {
  std::vector<std::vector<T>> results(parts.size());
  on_threads(static_cast<int>(parts.size()), [&](ThreadCommunicator& communicator) {
    const auto ops = reductions_of(communicator, {.kind = kind}, std::vector<int>(parts.size(), 0));
    const auto rank = static_cast<std::size_t>(communicator.rank());
    const Tensor mine = tensor_of(parts[rank]);
    ops->all_reduce(op, std::vector{mine.view()});
    results[rank] = mine.template to_vector<T>();
  });
  for (const auto& result : results)
    if (!same_bits(result, results.front())) return {};
  return results.front();
}

const std::vector<ReductionOptions::Kind> all_kinds{
    ReductionOptions::Kind::automatic, ReductionOptions::Kind::fixed_order, ReductionOptions::Kind::backend_order,
    ReductionOptions::Kind::hierarchical, ReductionOptions::Kind::to_one_rank};

}  // namespace

TEMPLATE_TEST_CASE("a sum of 16-bit floats is the tree in f32, rounded once at its end", "", Half, BFloat16) {
  for (int parts = 1; parts <= 9; ++parts) {
    const auto values = make_parts<TestType>(parts, 1300);
    const Tensor sum = Tensor::zeros(detail::dtype_of<TestType>, {1300});
    fixed_order_sum(tensor_of(concatenated(values)).view(), parts, sum.view());
    CAPTURE(parts);
    CHECK(same_bits(sum.to_vector<TestType>(), tree(values)));
  }
}

TEMPLATE_TEST_CASE("every kind of reduction adds up 16-bit floats with one rounding", "", Half, BFloat16) {
  // Rounded at every step, the two halves of a step on either side of 1 would be lost.
  const float half_step = std::same_as<TestType, Half> ? 0x1p-11f : 0x1p-8f;
  const std::vector<std::vector<TestType>> parts{numbers<TestType>({1}), numbers<TestType>({half_step}),
                                                 numbers<TestType>({half_step})};
  for (const ReductionOptions::Kind kind : all_kinds) {
    CAPTURE(name_of(kind));
    CHECK(reduced(parts, kind, ReduceOp::sum) == numbers<TestType>({1 + 2 * half_step}));
    for (const std::int64_t count : {100, 30'000}) {
      const auto many = make_parts<TestType>(3, count);
      CHECK(same_bits(reduced(many, kind, ReduceOp::sum), tree(many)));
      CHECK(same_bits(reduced(many, kind, ReduceOp::mean), tree(many, 3)));
    }
  }
}

TEST_CASE("a mean divides before it rounds, so it is finite where the sum is not") {
  const std::vector<std::vector<Half>> parts{numbers<Half>({60'000, 60'000}), numbers<Half>({60'000, -60'000})};
  for (const ReductionOptions::Kind kind : all_kinds) {
    CAPTURE(name_of(kind));
    CHECK(reduced(parts, kind, ReduceOp::mean) == numbers<Half>({60'000, 0}));
    CHECK(std::isinf(static_cast<float>(reduced(parts, kind, ReduceOp::sum)[0])));
  }
}

TEST_CASE("a mean of slices of 16-bit floats divides their values") {
  std::vector<float> means(2);
  on_threads(2, [&](ThreadCommunicator& communicator) {
    const auto ops = in_fixed_order(communicator);
    std::vector<IndexedSlices> slices{
        {Tensor::from({Half{3}}, {1, 1}), Tensor::from({std::int64_t{communicator.rank()}}, {1}), {2, 1}}};
    ops->all_reduce(ReduceOp::mean, std::span{slices});
    means[static_cast<std::size_t>(communicator.rank())] = slices.front().values.to_vector<Half>()[1];
  });
  CHECK(means == std::vector<float>{1.5, 1.5});
}

TEST_CASE("16-bit parts that come one after the other are refused: each sum would be rounded") {
  for (const DType dtype : {DType::f16, DType::bf16})
    CHECK_THROWS_WITH((FixedOrderAccumulator{dtype, 2}),
                      Catch::Contains(std::string{name_of(dtype)}) && Catch::EndsWith("accumulate them in f32"));
}

TEST_CASE("sums of integers wrap around") {
  const auto sum = [](auto a, auto b) {
    using T = decltype(a);
    const Tensor made = Tensor::zeros(detail::dtype_of<T>, {1});
    fixed_order_sum(Tensor::from({a, b}, {2}).view(), 2, made.view());
    return made.template to_vector<T>()[0];
  };
  CHECK(sum(std::uint8_t{200}, std::uint8_t{100}) == 44);
  CHECK(sum(std::numeric_limits<std::int32_t>::max(), 1) == std::numeric_limits<std::int32_t>::min());
  CHECK(sum(std::numeric_limits<std::int64_t>::min(), std::int64_t{-1}) == std::numeric_limits<std::int64_t>::max());
}
