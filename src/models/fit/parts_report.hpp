// Where the time of the replicas went, and which of them the others waited for.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include <lockstep/models/fit/observer.hpp>
#include <lockstep/sync/strategy/strategy.hpp>

#include "core/control/busy_clock.hpp"
#include "sync/group/replica_group.hpp"

namespace lockstep {

/// What the clocks of the replicas say of an interval. `step` and `steps` are left at 0.
Observer::Parts parts_of(std::span<const BusyClock::Times> replicas, std::span<const Job::Residence> residences);

/// The replicas that the others waited for during more than a twentieth of the time, the latest first. None if the
/// report covers too little to tell.
std::vector<int> late_replicas(const Observer::Parts& report);

/// "replica 3 (worker:3, host b): the others waited 11% of the time for it, mostly in data", or the same of several.
/// `names[r]` is how messages call replica r. `late` must not be empty.
std::string line_about(std::span<const int> late, const Observer::Parts& report, std::span<const std::string> names);

/// Gathers what the clocks of all ranks say, and warns of a rank that the others wait for.
class PartsReport {
 public:
  /// For the steps after `step`. `clock` is that of this thread. Both must outlive it.
  PartsReport(Strategy& strategy, BusyClock& clock, std::int64_t step);

  /// COLL, blocking. Call it directly after an agreement, so that the intervals of all ranks end together. Ends the
  /// interval with `step`. If a rank has been late for long enough to tell, and no line was about it, the chief logs
  /// one.
  void gather(std::int64_t step);

  /// LOCAL. Tells what was gathered since the last call, if anything.
  void tell(Observer& observer);

  /// What was gathered so far, added up.
  Observer::Parts whole() const;

 private:
  /// Times of all replicas, added up.
  struct Sum {
    std::int64_t steps = 0;
    std::vector<BusyClock::Times> replicas;

    void add(std::int64_t its_steps, std::span<const BusyClock::Times> times);
  };

  Observer::Parts report_of(const Sum& sum) const;
  void warn_of_late();

  Strategy& strategy_;
  BusyClock& clock_;
  std::int64_t step_;
  std::optional<Observer::Parts> gathered_;
  Sum whole_, to_judge_;  ///< since the start, and since the chief last looked who is late
  std::set<int> warned_of_;
};

}  // namespace lockstep
