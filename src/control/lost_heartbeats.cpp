#include "control/lost_heartbeats.hpp"

#include <cstddef>

#include <fmt/format.h>

namespace lockstep {

std::optional<LostHeartbeats> find_lost_heartbeats(const Heartbeats& heartbeats, const PhaseTable& table,
                                                   std::uint64_t many, const std::function<bool(int)>& is_mute) {
  const NodeMap& nodes = heartbeats.nodes();
  for (int row = 0; row < table.rows(); ++row) {
    const auto missed = heartbeats.missed_datagrams(row);
    const auto seen = table.read(row);
    if (!missed || seen.phase == Phase::absent || seen.phase == Phase::leaving || seen.terminated) continue;
    if (*missed >= many) return LostHeartbeats{row, true};
    // The other side could not hear that this one has said so.
    const bool first = nodes.node_of(table.row()) < nodes.node_of(row);
    if (first && is_mute(row)) return LostHeartbeats{row, false};
  }
  return std::nullopt;
}

std::string describe(const LostHeartbeats& lost, std::span<const std::string> names, int own) {
  return fmt::format("heartbeats between {} and {} do not get through by UDP{}", names[static_cast<std::size_t>(own)],
                     names[static_cast<std::size_t>(lost.row)],
                     lost.come_by_stream ? ": they go by TCP"
                                         : ", nor by TCP: a rank there may be waited for ten times the stall timeout");
}

}  // namespace lockstep
