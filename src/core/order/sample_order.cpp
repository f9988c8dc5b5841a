#include "core/order/sample_order.hpp"

#include <numeric>
#include <utility>

#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>
#include <lockstep/core/base/philox.hpp>

namespace lockstep {

std::vector<std::int64_t> sample_order(std::int64_t count, std::uint64_t seed, std::int64_t epoch) {
  if (count < 0) throw InvalidArgument{fmt::format("cannot order {} samples; expected 0 or more", count)};
  if (epoch < 0 || epoch >> 56 != 0)
    throw InvalidArgument{fmt::format("epoch {} has no sample order; expected one in [0, 2^56)", epoch)};

  std::vector<std::int64_t> order(static_cast<std::size_t>(count));
  std::iota(order.begin(), order.end(), std::int64_t{0});

  // Fisher-Yates: from the back, each position takes one of those not yet taken, itself included. The position is the
  // index of its random number, so no draw depends on how many came before it.
  const RandomStream random{seed, RandomStream::Purpose::sample_order, static_cast<std::uint64_t>(epoch)};
  for (std::size_t position = order.size(); position-- > 1;)
    std::swap(order[position], order[random.below(position + 1, position)]);
  return order;
}

}  // namespace lockstep
