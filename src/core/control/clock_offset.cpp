#include "core/control/clock_offset.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <vector>

#include "core/control/channel.hpp"

namespace lockstep {

ClockOffset clock_offset(std::span<const Exchange> of_first, std::span<const Exchange> own) {
  auto lowest = std::chrono::nanoseconds::min(), highest = std::chrono::nanoseconds::max();
  for (std::size_t index = 0; index < own.size(); ++index) {
    lowest = std::max(lowest, of_first[index].begin - own[index].end);
    highest = std::min(highest, of_first[index].end - own[index].begin);
  }
  // Clocks that run at different speeds may leave nothing between.
  return {(lowest + highest) / 2, std::chrono::abs(highest - lowest) / 2};
}

ClockOffset find_clock_offset(ControlChannel& channel) {
  constexpr std::size_t exchanges = 32;
  std::array<Exchange, exchanges> own{};
  const auto now = [] { return std::chrono::nanoseconds{std::chrono::steady_clock::now().time_since_epoch()}; };
  for (Exchange& exchange : own) {
    exchange.begin = now();
    (void)channel.max({});
    exchange.end = now();
  }
  std::vector<Exchange> all(exchanges * static_cast<std::size_t>(channel.size()));
  channel.all_gather(std::as_bytes(std::span{own}), std::as_writable_bytes(std::span{all}));
  return channel.rank() == 0 ? ClockOffset{} : clock_offset(std::span{all}.first(exchanges), own);
}

}  // namespace lockstep
