// ReduceOp::exact_sum element by element: the same bits as ExactSum, which exact-sums compares with Python's fractions,
// whatever way each element takes.
#include <bit>
#include <cfenv>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <type_traits>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

#include <lockstep/sync/reduce/exact_sum.hpp>

#include "reduce_support.hpp"
#include "support/reductions_of.hpp"
#include "support/thread_communicator.hpp"
#include "sync/reduce/arithmetic.hpp"
#include "sync/reduce/exact_block.hpp"
#include "sync/reduce/reductions.hpp"

using namespace lockstep;
using namespace lockstep::test;

namespace {

/// Parts whose elements are near each other, far from each other, cancelling, special, anything at all, or near a tie.
template <class T>
std::vector<std::vector<T>> hostile_parts(int parts, std::size_t count) {
  using Bits = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;
  using Limits = std::numeric_limits<T>;
  std::mt19937_64 draw{static_cast<std::uint64_t>(parts)};
  const T special[] = {0,
                       -T{0},
                       Limits::infinity(),
                       -Limits::infinity(),
                       Limits::quiet_NaN(),
                       Limits::max(),
                       -Limits::max(),
                       Limits::denorm_min(),
                       -Limits::denorm_min(),
                       Limits::min(),
                       1,
                       -1};
  std::vector<std::vector<T>> made(static_cast<std::size_t>(parts), std::vector<T>(count));
  for (std::size_t i = 0; i < count; ++i)
    for (std::size_t part = 0; part < made.size(); ++part) {
      T& element = made[part][i];
      const auto any = static_cast<T>(static_cast<double>(draw()) / 0x1p63 - 1);
      switch (i % 7) {
        case 0: element = any; break;
        case 1: element = std::ldexp(any, static_cast<int>(draw() % 80)); break;
        case 2:
          element = part % 2 == 1 && draw() % 4 != 0 ? -made[part - 1][i] : std::bit_cast<T>(static_cast<Bits>(draw()));
          break;
        case 3: element = special[draw() % 12]; break;
        case 4: element = special[draw() % 2]; break;
        case 5: element = std::ldexp(T{1}, static_cast<int>(draw() % 60) - 30); break;
        case 6:  // a number, half of its last bit, and very little
          element = part < 2 ? std::ldexp(T{1}, part == 0 ? 0 : -Limits::digits)
                             : std::ldexp(draw() % 2 == 0 ? T{1} : T{-1}, -110 - static_cast<int>(draw() % 20));
          break;
      }
    }
  return made;
}

template <class T>
std::vector<T> exact_sums_of(const std::vector<std::vector<T>>& parts) {
  std::vector<T> sums;
  for (std::size_t i = 0; i < parts.front().size(); ++i) {
    ExactSum<T> sum;
    for (const auto& part : parts) sum.add(part[i]);
    sums.push_back(sum.value());
  }
  return sums;
}

template <class T>
std::vector<T> in_one_block(const std::vector<std::vector<T>>& parts) {
  std::vector<T> flat, sums(parts.front().size());
  for (const auto& part : parts) flat.insert(flat.end(), part.begin(), part.end());
  const auto count = static_cast<std::int64_t>(sums.size());
  detail::exact_sum_of_block(flat.data(), count, static_cast<int>(parts.size()), count, detail::arithmetic_now(),
                             sums.data());
  return sums;
}

}  // namespace

TEMPLATE_TEST_CASE("each element of a block is the exact sum of its pieces", "", float, double) {
  for (const int parts : {2, 3, 4, 5, 8, 17}) {
    CAPTURE(parts);
    auto all = hostile_parts<TestType>(parts, 510);
    const auto expected = exact_sums_of(all);
    CHECK(same_bits(in_one_block(all), expected));
    std::swap(all.front(), all.back());
    CHECK(same_bits(in_one_block(all), expected));
    for (const int mode : {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO}) {
      CAPTURE(mode);
      REQUIRE(std::fesetround(mode) == 0);
      const auto otherwise = in_one_block(all);
      std::fesetround(FE_TONEAREST);
      CHECK(same_bits(otherwise, expected));
    }
  }
}

TEMPLATE_TEST_CASE("arrays are added up exactly where denormal numbers are zeros to the processor", "", float, double) {
  // Normal numbers whose sum is denormal, and denormal numbers whose sum is not.
  using Limits = std::numeric_limits<TestType>;
  const TestType small = Limits::min(), tiny = Limits::denorm_min();
  const unsigned control = GENERATE(0x40U, 0x8000U, 0x8040U);
  for (const std::size_t parts : {2U, 3U, 4U}) {
    CAPTURE(parts, control);
    std::vector<std::vector<TestType>> all(parts, std::vector<TestType>(1200));
    for (std::size_t i = 0; i < 1200; ++i)
      for (std::size_t part = 0; part < parts; ++part)
        all[part][i] = i % 2 == 0 ? (part % 2 == 0 ? small + static_cast<TestType>(i) * tiny : -small) : small - tiny;
    const auto expected = exact_sums_of(all);
    std::vector<TestType> flat, sums(1200);
    for (const auto& part : all) flat.insert(flat.end(), part.begin(), part.end());
    const std::int64_t stride = 1200 * sizeof(TestType);
    std::fenv_t before;
    REQUIRE(std::fegetenv(&before) == 0);
    zero_denormals(control);
    detail::tree_sum({reinterpret_cast<std::byte*>(flat.data()), stride, static_cast<int>(parts)},
                     detail::dtype_of<TestType>, 1200, {.is_exact = true}, reinterpret_cast<std::byte*>(sums.data()));
    std::fesetenv(&before);
    CHECK(same_bits(sums, expected));
  }
}

TEMPLATE_TEST_CASE("reductions add up exactly, short and long, on all ranks and on one", "", float, double) {
  const auto kind = GENERATE(ReductionOptions::Kind::automatic, ReductionOptions::Kind::hierarchical,
                             ReductionOptions::Kind::backend_order, ReductionOptions::Kind::to_one_rank);
  const int ranks_of_node = GENERATE(4, 2, 1);
  for (const int ranks : {2, 3, 4})
    for (const std::size_t count : {std::size_t{7}, std::size_t{40'000}}) {
      CAPTURE(ranks, count, ranks_of_node, static_cast<int>(kind));
      std::vector<int> nodes;
      for (int rank = 0; rank < ranks; ++rank) nodes.push_back(rank / ranks_of_node);
      const auto parts = hostile_parts<TestType>(ranks, count);
      const auto expected = exact_sums_of(parts);
      std::vector<char> is_right(parts.size());
      on_threads(ranks, [&](ThreadCommunicator& communicator) {
        const auto rank = static_cast<std::size_t>(communicator.rank());
        const auto ops = reductions_of(communicator, {.kind = kind}, nodes);
        const Tensor all = tensor_of(parts[rank]), one = tensor_of(parts[rank]);
        ops->all_reduce(ReduceOp::exact_sum, std::vector{all.view()});
        ops->reduce_to_one(ReduceOp::exact_sum, std::vector{one.view()}, ranks - 1);
        is_right[rank] = same_bits(all.template to_vector<TestType>(), expected) &&
                         (communicator.rank() != ranks - 1 || same_bits(one.template to_vector<TestType>(), expected));
      });
      CHECK(is_right == std::vector<char>(parts.size(), 1));
    }
}
