// The table that says where every rank is. Pure.
#pragma once

#include <chrono>
#include <cstdint>
#include <ratio>
#include <span>
#include <string>

#include "core/control/phase_table.hpp"
#include "core/watch/judgement.hpp"

namespace lockstep {

/// Since when a rank is where it is, and has not beaten.
class Stay {
 public:
  /// As a watchdog counts it. Rises for more than a year.
  using Time = std::chrono::duration<std::uint32_t, std::centi>;

  /// One more look at the rank, at `now`.
  void look(const Observation::Row& rank, Time now) {
    if (rank.place != place_) there_since_ = now;
    if (rank.heartbeat != heartbeat_) beaten_at_ = now;
    place_ = rank.place;
    heartbeat_ = rank.heartbeat;
  }

  Time there(Time now) const { return now - there_since_; }
  Time silent(Time now) const { return now - beaten_at_; }

 private:
  std::uint32_t place_ = 0, heartbeat_ = 0;
  Time there_since_{0}, beaten_at_{0};
};

/// What is told of a rank.
struct Whereabout {
  using Seconds = std::chrono::duration<double>;

  PhaseTable::Snapshot seen;
  bool ended = false;  ///< its process
  Seconds there{0};    ///< for how long it has been where it is
  Seconds silent{0};   ///< since its last heartbeat
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
std::string where_table(std::span<const std::string> names, std::span<const Whereabout> ranks,
                        Whereabout::Seconds heartbeats_come, std::chrono::system_clock::time_point now);

/// "2026-11-26 17:01:02 UTC".
std::string utc_text(std::chrono::system_clock::time_point now);

}  // namespace lockstep
