// Exact sums over the ranks: what they give does not depend on which rank brings which numbers, and on how many ranks.
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include <catch2/catch.hpp>

#include <lockstep/core/base/error.hpp>
#include <lockstep/core/tensor/tensor.hpp>
#include <lockstep/sync/group/group.hpp>
#include <lockstep/sync/reduce/exact_sum.hpp>

#include "support/ranks.hpp"

using namespace lockstep;
using namespace lockstep::test;

namespace {

/// Finite numbers of all exponents and signs, and then all but every seventh again, with the other sign.
template <class T>
std::vector<T> hostile_numbers() {
  using Bits = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;
  constexpr Bits infinity = std::bit_cast<Bits>(std::numeric_limits<T>::infinity());
  std::vector<T> numbers;
  std::uint64_t state = 1;
  for (int i = 0; i < 1000; ++i) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    auto bits = static_cast<Bits>(state >> (64 - 8 * sizeof(T)));
    if ((bits & infinity) == infinity) bits ^= infinity;
    numbers.push_back(std::bit_cast<T>(bits));
  }
  for (std::size_t i = 0; i < 1000; ++i)
    if (i % 7 != 0) numbers.push_back(-numbers[i]);
  return numbers;
}

/// Those that this rank brings: the first rank has one, the others share the rest.
template <class T>
ExactSum<T> sum_of_this_rank(const std::vector<T>& numbers) {
  ExactSum<T> sum;
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const int owner = i == 0 || ranks() == 1 ? 0 : 1 + static_cast<int>(i % static_cast<std::size_t>(last()));
    if (owner == rank()) sum.add(numbers[i]);
  }
  return sum;
}

template <class T>
void check_arrays() {
  Group group = runtime().strategy().ranks();
  // Every rank has another part of the same numbers, which cancel in part.
  const auto numbers = hostile_numbers<T>();
  const auto number_of = [&](int of_rank, std::size_t i) {
    return numbers[(i * 7 + static_cast<std::size_t>(of_rank) * (i % 2 == 0 ? 1000 : 1)) % numbers.size()];
  };
  for (const std::size_t block : {3U, 20'000U}) {
    CAPTURE(block);
    const std::size_t count = block * static_cast<std::size_t>(ranks());
    std::vector<T> mine, expected;
    for (std::size_t i = 0; i < count; ++i) {
      mine.push_back(number_of(rank(), i));
      ExactSum<T> sum;
      for (int of_rank = 0; of_rank < ranks(); ++of_rank) sum.add(number_of(of_rank, i));
      expected.push_back(sum.value());
    }
    const Group::SumOptions exactly{.op = ReduceOp::exact_sum};
    auto blocking = mine, submitted = mine, on_last = mine;
    group.all_reduce(ReduceOp::exact_sum, std::span{blocking});
    CHECK(blocking == expected);
    const Tensor tensor = Tensor::from(mine, {static_cast<std::int64_t>(count)});
    group.all_reduce(ReduceOp::exact_sum, tensor.view());
    CHECK(tensor.to_vector<T>() == expected);
    Group::Request all = group.submit_all_reduce(std::span{submitted}, exactly);
    Group::Request one = group.submit_reduce(std::span{on_last}, last(), exactly);
    std::vector<T> half(block);
    group.submit_reduce_scatter(std::span{mine}, std::span{half}, exactly).wait();
    all.wait();
    one.wait();
    CHECK(submitted == expected);
    if (odd_one()) CHECK(on_last == expected);
    const auto first = expected.begin() + static_cast<std::ptrdiff_t>(block) * rank();
    CHECK(half == std::vector<T>(first, first + static_cast<std::ptrdiff_t>(block)));
    group.submit_all_gather(std::span{half}, std::span{mine}).wait();
    CHECK(mine == expected);
  }
}

}  // namespace

TEST_CASE("an exact sum over the ranks is that of Python's fractions, on any number of ranks") {
  Group group = runtime().strategy().ranks();
  auto doubles = sum_of_this_rank(hostile_numbers<double>());
  group.all_reduce(doubles);
  CHECK(std::bit_cast<std::uint64_t>(doubles.value()) == 0xfdaec9c7bf0a35a3U);
  auto floats = sum_of_this_rank(hostile_numbers<float>());
  group.all_reduce(floats);
  CHECK(std::bit_cast<std::uint32_t>(floats.value()) == 0xfdf2adf2U);

  ExactSum<double> alone, several;
  alone.add(std::span<const double>{hostile_numbers<double>()});
  CHECK(doubles.words() == alone.words());
  // Every rank has the whole sum by now.
  group.all_reduce(doubles);
  for (int i = 0; i < ranks(); ++i) several.add(alone);
  CHECK(doubles.words() == several.words());
}

TEST_CASE("an exact sum over the ranks counts their infinities, NaNs and zeros") {
  Group group = runtime().strategy().ranks();
  const auto sum_of = [&](double first, double others) {
    ExactSum<double> sum;
    sum.add(rank() == 0 ? first : others);
    group.all_reduce(sum);
    return sum.value();
  };
  const double infinity = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
  const double large = std::numeric_limits<double>::max();
  CHECK(sum_of(infinity, -large) == infinity);
  CHECK(std::isnan(sum_of(nan, 1)));
  CHECK(std::signbit(sum_of(-0.0, -0.0)));
  if (ranks() == 1) return;
  CHECK(std::isnan(sum_of(infinity, -infinity)));
  CHECK_FALSE(std::signbit(sum_of(0.0, -0.0)));
  CHECK(sum_of(large, large) == infinity);
  CHECK(sum_of(-large, large) == (ranks() == 2 ? 0 : ranks() == 3 ? large : infinity));
}

TEST_CASE("ranks whose exact sums are of other types are told so, and go on") {
  if (ranks() == 1) return;
  Group group = runtime().strategy().ranks().anywhere();
  ExactSum<float> floats;
  ExactSum<double> doubles;
  floats.add(1);
  doubles.add(1);
  const std::string told = mismatch_of([&] { odd_one() ? group.all_reduce(floats) : group.all_reduce(doubles); });
  CHECK_THAT(told, Catch::Contains("exact sum of f32") && Catch::Contains("exact sum of f64"));
  CHECK(floats.value() == 1);
  group.all_reduce(doubles);
  CHECK(doubles.value() == ranks());
}

TEST_CASE("arrays are added up exactly, blocking and by requests, in whole and in halves") {
  check_arrays<float>();
  check_arrays<double>();
}

TEST_CASE("exact sums are refused where there are none, before the ranks meet") {
  Group group = runtime().strategy().ranks();
  int integers[] = {1, 2};
  float floats[] = {1, 2};
  const Group::SumOptions exactly{.op = ReduceOp::exact_sum};
  CHECK(message_of<InvalidArgument>([&] { group.all_reduce(ReduceOp::exact_sum, std::span{integers}); }) ==
        "the exact sum of i32[2]: expected f32 or f64 in the host's memory");
  CHECK_THROWS_AS(group.submit_all_reduce(std::span{integers}, exactly), InvalidArgument);
  CHECK(message_of<InvalidArgument>([&] {
          (void)group.submit_all_reduce(std::span{floats}, {.wire = DType::bf16, .op = ReduceOp::exact_sum});
        }) == "an exact sum sent as bf16: expected no wire type");
  CHECK(message_of<InvalidArgument>([&] {
          (void)group.submit_all_reduce(std::span{floats}, {.op = ReduceOp::mean});
        }) == "a request for the mean of f32[2]: expected sum or exact_sum");
  Strategy& strategy = runtime().strategy();
  const auto refused = Catch::Contains("only the sums of a Group are exact; expected sum or mean");
  CHECK_THAT(message_of<InvalidArgument>([&] { strategy.reduce(ReduceOp::exact_sum, PerReplica<float>{1.0F}); }),
             refused);
  CHECK_THAT(message_of<InvalidArgument>([&] { strategy.reduce(ReduceOp::exact_sum, 1.0F); }), refused);
  expect_in_step();
}

TEST_CASE("a group's means and ordinary sums are told from exact ones") {
  Group group = runtime().strategy().ranks().anywhere();
  float values[] = {static_cast<float>(rank()), 3};
  group.all_reduce(ReduceOp::mean, std::span{values});
  CHECK(values[0] == static_cast<float>(last()) / 2);
  if (ranks() == 1) return;
  const std::string told =
      mismatch_of([&] { group.all_reduce(odd_one() ? ReduceOp::exact_sum : ReduceOp::sum, std::span{values}); });
  CHECK_THAT(told, Catch::Contains("exact sum of f32[2]"));
}
