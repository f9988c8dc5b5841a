#include "apps/lockstep-bench/overlap.hpp"

#include <algorithm>

#include "sync/reduce/sums_under_way.hpp"

namespace lockstep::bench {

std::vector<Look> looks_of(std::span<const double> ready, std::span<const GradientMessage> messages) {
  std::vector<Look> looks;
  for (const double moment : ready) looks.push_back({moment, 0});
  double complete = 0;
  std::size_t gradient = 0;
  for (const GradientMessage& message : messages) {
    for (; gradient < message.gradients; ++gradient) complete = std::max(complete, ready[gradient]);
    looks.push_back({complete, message.bytes});
  }
  looks.push_back({1, 0});
  std::ranges::stable_sort(looks, {}, &Look::moment);
  return looks;
}

double exposed_time(std::span<const Look> looks, double pass, double one_way) {
  constexpr double most = detail::SumsUnderWay::bytes_under_way;
  // Bytes that wait to go, that have come to whoever adds them up, and that wait to return.
  double there = 0, arrived = 0, back = 0;
  for (std::size_t look = 0; look < looks.size(); ++look) {
    there += static_cast<double>(looks[look].bytes);
    back += arrived;
    arrived = 0;
    if (look + 1 == looks.size()) break;
    const double room = (looks[look + 1].moment - looks[look].moment) * pass / one_way;
    const double returned = std::min({back, most, room});
    arrived = std::min({there, most, room - returned});
    back -= returned;
    there -= arrived;
  }
  return (2 * there + back) * one_way;
}

}  // namespace lockstep::bench
