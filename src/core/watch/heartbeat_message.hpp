// What a heartbeat says, and the bytes that travel, sealed with a key of the job.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "core/base/open_line.hpp"
#include "core/control/phase_table.hpp"
#include "core/watch/node_map.hpp"

namespace lockstep {

/// 128 bits that only the ranks of one job know.
using HeartbeatKey = std::array<unsigned char, 16>;

/// A new key from the system's random source. CommError if the system has none.
HeartbeatKey make_heartbeat_key();

/// All ranks run the same program on the same kind of machine, so it travels as it is.
struct HeartbeatMessage {
  std::uint64_t sequence = 0;  ///< rises with each message of a rank, and has 32 bits: enough for years
  PhaseTable::Snapshot row;    ///< the sender's; without `process.here`, `passed` and `ended_by`
  int rank = 0;                ///< the sender
  std::uint8_t reported = 0;   ///< 1: on its node the failure has been reported
  std::uint8_t warned = 0;     ///< 1: on its node someone has said that heartbeats do not get through
  std::uint16_t route = 0;     ///< 1 and a NodeMap::Route by which it is passed on; 0 if it is not
  PhaseTable::Speaker speaker;
  OpenLine open_line = OpenLine::closed;
  PhaseTable::Observed observed;
  PhaseTable::Questions questions;
  std::uint32_t wishes = 0;  ///< see PhaseTable
  std::uint32_t lost = 0;    ///< 1 and the row of a rank that is gone, as somebody has reported; 0 if none is
};

inline constexpr std::size_t seal_bytes = 16;
inline constexpr std::size_t sealed_heartbeat_bytes = sizeof(HeartbeatMessage) + seal_bytes;
using SealedHeartbeat = std::array<std::byte, sealed_heartbeat_bytes>;

SealedHeartbeat seal(const HeartbeatMessage& message, const HeartbeatKey& key);

/// Nothing unless these bytes were sealed with this key, and every field is in range for a job of `ranks` ranks.
std::optional<HeartbeatMessage> open_sealed(std::span<const std::byte> bytes, const HeartbeatKey& key, int ranks);

}  // namespace lockstep
