// What is said, once for the job, where heartbeats do not come as datagrams although the rank lives.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>

#include "control/heartbeats.hpp"
#include "control/phase_table.hpp"

namespace lockstep {

struct LostHeartbeats {
  int row = 0;
  bool come_by_stream = false;
};

/// The lowest rank that this one is to hear and misses. Some datagrams are lost on any network; `many` are too many.
/// `is_mute(row)` says whether nothing has come from a rank for long, though it lives.
std::optional<LostHeartbeats> find_lost_heartbeats(const Heartbeats& heartbeats, const PhaseTable& table,
                                                   std::uint64_t many, const std::function<bool(int)>& is_mute);

/// The warning. `names[row]` is "replica 2 (worker:1, host b)"; `own` is this rank's row.
std::string describe(const LostHeartbeats& lost, std::span<const std::string> names, int own);

}  // namespace lockstep
