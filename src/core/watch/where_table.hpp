// The table that says where every rank is. Pure.
#pragma once

#include <chrono>
#include <span>
#include <string>

#include "core/control/phase_table.hpp"

namespace lockstep {

/// What the looks at a rank have shown so far.
struct Stay {
  using Seconds = std::chrono::duration<double>;

  PhaseTable::Snapshot seen;  ///< in the last look
  bool ended = false;         ///< its process
  Seconds there{0};           ///< for how long it has been seen where it is
  Seconds silent{0};          ///< since its last heartbeat

  /// `took` is the time since the look before.
  void look(const PhaseTable::Snapshot& now, Seconds took);
};

/// A title and one line for each rank. `names[row]` is "replica 2 (worker:1, host b)". A rank without a heartbeat for
/// longer than `heartbeats_come` is shown with what was known last, and since when.
///
///   Where the 2 ranks are, 2026-11-26 17:01:02 UTC:
///     rank                          process  memory    peak     for  place
///     replica 0 (worker:0, host a)     4242  81 MiB  90 MiB   3.2 s  in step 12, computing
///     replica 1 (worker:1, host b)      999  80 MiB  90 MiB  31.0 s  no heartbeat for 30.2 s; was in step 12, …
///
/// The process is the rank's number on its own host. What is unknown is "-".
std::string where_table(std::span<const std::string> names, std::span<const Stay> stays, Stay::Seconds heartbeats_come,
                        std::chrono::system_clock::time_point now);

/// "2026-11-26 17:01:02 UTC".
std::string utc_text(std::chrono::system_clock::time_point now);

}  // namespace lockstep
