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
#include "sync/reduce/exact_block.hpp"
#include "sync/reduce/reductions.hpp"

using namespace lockstep;
using namespace lockstep::test;

namespace {

/// Parts whose elements are near each other, far from each other, cancelling, special or anything at all.
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
      switch (i % 6) {
        case 0: element = any; break;
        case 1: element = std::ldexp(any, static_cast<int>(draw() % 80)); break;
        case 2:
          element = part % 2 == 1 && draw() % 4 != 0 ? -made[part - 1][i] : std::bit_cast<T>(static_cast<Bits>(draw()));
          break;
        case 3: element = special[draw() % 12]; break;
        case 4: element = special[draw() % 2]; break;
        case 5: element = std::ldexp(T{1}, static_cast<int>(draw() % 60) - 30); break;
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
  detail::exact_sum_of_block(flat.data(), count, static_cast<int>(parts.size()), count, sums.data());
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
