// Messages of a simulated rank, which travel while it computes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "comm/communicator.hpp"
#include "comm/messenger.hpp"
#include "sim/plane.hpp"

namespace lockstep::sim {

/// Parcels leave at the call, and are written to their places in the wait: the earliest and the latest moment that a
/// backend may choose. Each `advance` is a scheduling point.
class SimMessenger final : public Messenger {
 public:
  /// For the members of `plane`. `rank` is the job's number.
  SimMessenger(Plane& plane, int rank);

  Work start(std::span<const Parcel> parcels, Lane lane) override;

 private:
  class UnderWay;

  Plane& of(Lane lane) { return lanes_[static_cast<std::size_t>(lane)]; }

  std::vector<std::reference_wrapper<Plane>> lanes_;
  int rank_;
};

}  // namespace lockstep::sim
