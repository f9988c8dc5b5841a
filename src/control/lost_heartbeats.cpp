// Whose heartbeats do not get through, while the job goes on.
#include <algorithm>

#include <fmt/format.h>

#include "control/watch_view.hpp"

namespace lockstep {
namespace {

class LostHeartbeats : WatchView {
 public:
  explicit LostHeartbeats(const WatchView& view) : WatchView{view} {}

  std::optional<std::string> warning() const {
    if (!job_.between_nodes() || seen_.warned || row(job_.row).phase == Phase::leaving) return std::nullopt;
    for (int row = 0; row < rows(); ++row) {
      const auto [by_tcp, by_none] = lost(row);
      if (!by_tcp && !by_none) continue;
      if (++state_.lost_ticks <= ticks_until_turn() || !seen_.takes_a_line) return std::nullopt;
      return fmt::format(
          "heartbeats between {} and {} do not get through by UDP{}", name(job_.row), name(row),
          by_tcp ? ": they go by TCP" : ", nor by TCP: a rank there may be waited for ten times the stall timeout");
    }
    state_.lost_ticks = 0;
    return std::nullopt;
  }

 private:
  // How long TCP has to get through where datagrams do not.
  static constexpr Seconds time_for_tcp{2};

  struct Lost {
    bool by_tcp;
    bool by_none;
  };

  Lost lost(int row) const {
    const auto missed = sight(row).missed_datagrams;
    const Snapshot& seen = this->row(row);
    if (!missed || seen.phase == Phase::absent || seen.phase == Phase::leaving || seen.terminated)
      return {false, false};
    // Some datagrams are lost on any network.
    const std::uint64_t many = std::clamp<std::uint64_t>(stall_ticks_ / 2 / job_.ticks_a_heartbeat(), 3, 50);
    // The other side could not hear that this one has said so. A moment later TCP may get through.
    const bool first = job_.nodes.node_of(job_.row) < job_.nodes.node_of(row);
    const SignsOfLife& life = peer(row).life;
    const bool silent = life.silent_ticks() >= std::max(stall_ticks_ / 2, ticks_in(time_for_tcp));
    return {*missed >= many, first && life.is_mute() && silent};
  }
};

}  // namespace

std::optional<std::string> lost_heartbeats(const WatchView& view) {
  return LostHeartbeats{view}.warning();
}

}  // namespace lockstep
