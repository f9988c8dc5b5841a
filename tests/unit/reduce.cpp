// The fixed-order sum against the order it documents, to the bit.
#include <algorithm>
#include <functional>
#include <numeric>

#include <catch2/catch.hpp>

#include <lockstep/core/base/error.hpp>
#include <lockstep/sync/reduce/fixed_order.hpp>

#include "reduce_support.hpp"
#include "sync/reduce/fixed_order_sum.hpp"

using namespace lockstep;
using lockstep::test::concatenated;
using lockstep::test::make_parts;
using lockstep::test::same_bits;
using lockstep::test::tensor_of;
using lockstep::test::tree;

namespace {

template <class T>
std::vector<T> summed(const std::vector<std::vector<T>>& parts) {
  const auto count = static_cast<std::int64_t>(parts.front().size());
  const Tensor sum = Tensor::from(std::vector<T>(parts.front().size(), T{77}), {count});
  fixed_order_sum(tensor_of(concatenated(parts)).view(), static_cast<int>(parts.size()), sum.view());
  return sum.to_vector<T>();
}

/// Every run of `ways` parts replaced by its sum: what a rank that holds them hands on.
template <class T>
std::vector<std::vector<T>> summed_in_runs(const std::vector<std::vector<T>>& parts, std::size_t ways) {
  std::vector<std::vector<T>> runs;
  for (std::size_t first = 0; first < parts.size(); first += ways) {
    const auto end = std::min(first + ways, parts.size());
    runs.push_back(summed(std::vector(parts.begin() + static_cast<std::ptrdiff_t>(first),
                                      parts.begin() + static_cast<std::ptrdiff_t>(end))));
  }
  return runs;
}

template <class T>
std::vector<T> left_to_right(const std::vector<std::vector<T>>& parts) {
  std::vector<T> sum = parts.front();
  for (std::size_t part = 1; part < parts.size(); ++part)
    std::transform(sum.begin(), sum.end(), parts[part].begin(), sum.begin(), std::plus<T>{});
  return sum;
}

}  // namespace

TEMPLATE_TEST_CASE("a fixed-order sum is the documented tree", "", float, double, std::int32_t, std::int64_t,
                   std::uint8_t) {
  for (int parts = 1; parts <= 9; ++parts) {
    for (const std::int64_t count : {0, 1, 2, 511, 512, 513, 1025}) {
      CAPTURE(parts, count);
      const auto values = make_parts<TestType>(parts, count);
      CHECK(same_bits(summed(values), tree(values)));
    }
  }
}

TEST_CASE("the tree's order is one that matters for the values of these tests") {
  for (int parts = 4; parts <= 9; ++parts) {
    const auto values = make_parts<float>(parts, 513);
    CHECK_FALSE(same_bits(summed(values), left_to_right(values)));
    auto reversed = values;
    std::reverse(reversed.begin(), reversed.end());
    if (parts > 4 && parts != 8)
      CHECK_FALSE(same_bits(summed(values), summed(reversed)));  // 4 and 8 are symmetric trees
  }
}

TEST_CASE("the bracketing, spelled out") {
  // In float 1 + 2^24 is 2^24: each bracket leaves its trace.
  const float big = 16'777'216.f;
  const auto sum = [](const std::vector<float>& values) {
    std::vector<std::vector<float>> parts;
    for (const float value : values) parts.push_back({value});
    return summed(parts).front();
  };
  CHECK(sum({1, 1, big}) == (1.f + 1.f) + big);           // 2 + 1
  CHECK(sum({big, 1, 1}) == (big + 1.f) + 1.f);           // the last one by itself: both ones are lost
  CHECK(sum({big, 0, 1, 1}) == big + (1.f + 1.f));        // 2 + 2
  CHECK(sum({big, 0, 0, 0, 1, 1}) == big + (1.f + 1.f));  // 4 + 2
  CHECK(sum({0, 0, 1, 1, big}) == 2.f + big);             // 4 + 1
  CHECK(sum({0, 0, 0, 0, big, 1, 1}) == big);             // 4 + (2 + 1)
}

TEST_CASE("empty shards are zeros in the tree, and keep the sign of zero") {
  CHECK(std::signbit(summed<float>({{-0.f}, {-0.f}}).front()));
  CHECK_FALSE(std::signbit(summed<float>({{-0.f}, {0.f}}).front()));
  CHECK(std::signbit(summed<float>({{-0.f}}).front()));
}

TEST_CASE("a rank that sums an aligned run of the parts changes no bit") {
  for (const int parts : {2, 4, 8, 16, 12, 24}) {
    const auto values = make_parts<float>(parts, 700);
    const auto expected = summed(values);
    for (const std::size_t ways : {2, 4, 8}) {
      if (static_cast<std::size_t>(parts) % ways) continue;
      CAPTURE(parts, ways);
      const auto runs = summed_in_runs(values, ways);
      CHECK(same_bits(summed(runs), expected));
      if (runs.size() % 2 == 0) CHECK(same_bits(summed(summed_in_runs(runs, 2)), expected));  // ranks within nodes
    }
  }
}

TEST_CASE("runs of a length that is no power of two do change bits: why shards are dealt in powers of two") {
  const auto values = make_parts<float>(12, 700);
  CHECK_FALSE(same_bits(summed(summed_in_runs(values, 3)), summed(values)));
}

TEST_CASE("a sum of pieces that do not fit is refused") {
  const Tensor six = Tensor::zeros(DType::f32, {6});
  const Tensor three = Tensor::zeros(DType::f32, {3});
  CHECK_THROWS_WITH(fixed_order_sum(six.view(), 3, three.view()), Catch::Contains("f32[6] is not 3 pieces of f32[3]"));
  CHECK_THROWS_AS(fixed_order_sum(six.view(), 0, three.view()), InvalidArgument);
  CHECK_THROWS_AS(fixed_order_sum(six.view(), -2, three.view()), InvalidArgument);
  CHECK_THROWS_AS(fixed_order_sum(Tensor{}.view(), 0, three.view()), InvalidArgument);
  CHECK_THROWS_AS(fixed_order_sum(six.view(), 2, Tensor::zeros(DType::f64, {3}).view()), InvalidArgument);
}

TEMPLATE_TEST_CASE("an accumulator gives the same bits as the sum of all parts at once", "", float, double,
                   std::int64_t) {
  FixedOrderAccumulator accumulator{detail::dtype_of<TestType>, 600};
  for (int parts = 1; parts <= 17; ++parts) {  // one accumulator for all: what is left of the last sum does not matter
    const auto values = make_parts<TestType>(parts, 600);
    for (const auto& part : values) {
      std::copy(part.begin(), part.end(), accumulator.next().template elements<TestType>().begin());
      accumulator.push();
    }
    const Tensor sum = Tensor::zeros(detail::dtype_of<TestType>, {20, 30});
    accumulator.finish(sum.view());
    CAPTURE(parts);
    CHECK(same_bits(sum.template to_vector<TestType>(), tree(values)));
  }
}

TEST_CASE("an accumulator keeps log2(parts) + 1 tensors") {
  FixedOrderAccumulator accumulator{DType::f32, 10};
  std::vector<const std::byte*> homes;
  for (int part = 0; part < 1000; ++part) {
    homes.push_back(accumulator.next().data());
    accumulator.push();
  }
  std::sort(homes.begin(), homes.end());
  CHECK(std::unique(homes.begin(), homes.end()) - homes.begin() <= 10);
}

TEST_CASE("an accumulator with a home sums there, without another tensor for one part or two") {
  const Tensor home = Tensor::zeros(DType::f32, {20, 30});
  FixedOrderAccumulator accumulator{home.view()};
  for (int parts = 1; parts <= 9; ++parts) {
    const auto values = make_parts<float>(parts, 600);
    for (const auto& part : values) {
      if (&part == &values.front()) CHECK(accumulator.next().data() == home.view().data());
      std::ranges::copy(part, accumulator.next().elements<float>().begin());
      accumulator.push();
    }
    accumulator.finish(home.view());
    CAPTURE(parts);
    CHECK(same_bits(home.to_vector<float>(), tree(values)));
  }
  accumulator.push();
  const Tensor elsewhere = Tensor::zeros(DType::f32, {600});
  accumulator.finish(elsewhere.view());
  CHECK(same_bits(elsewhere.to_vector<float>(), home.to_vector<float>()));
}

TEST_CASE("an accumulator that is cleared begins anew") {
  FixedOrderAccumulator accumulator{DType::f32, 1};
  const auto push = [&](float value) {
    accumulator.next().elements<float>()[0] = value;
    accumulator.push();
  };
  for (int i = 0; i < 3; ++i) push(1);
  accumulator.clear();
  const Tensor sum = Tensor::zeros(DType::f32, {1});
  CHECK_THROWS_AS(accumulator.finish(sum.view()), InvalidArgument);
  push(2);
  push(5);
  accumulator.finish(sum.view());
  CHECK(sum.to_vector<float>()[0] == 7);
}

TEST_CASE("where the next part goes stays the same until it is pushed") {
  FixedOrderAccumulator accumulator{DType::f32, 2};
  CHECK(accumulator.next().data() == accumulator.next().data());
  CHECK(accumulator.next().shape() == Shape{2});
}

TEST_CASE("an accumulator without parts has no sum, and one of no elements an empty one") {
  FixedOrderAccumulator accumulator{DType::f32, 2};
  const Tensor sum = Tensor::zeros(DType::f32, {2});
  CHECK_THROWS_AS(accumulator.finish(sum.view()), InvalidArgument);
  accumulator.push();
  CHECK_THROWS_AS(accumulator.finish(Tensor::zeros(DType::f32, {3}).view()), InvalidArgument);
  FixedOrderAccumulator empty{DType::f32, 0};
  empty.push();
  empty.push();
  empty.finish(Tensor{}.view());
}
