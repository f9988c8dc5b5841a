// Messages between the ranks of a group, which travel while the ranks compute.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>

#include "core/comm/communicator.hpp"

namespace lockstep {

/// What this rank sends to another one, and where it puts what that one sends. Either may be empty. The other rank's
/// parcel for this rank has the same sizes, the other way round: CommError in `advance` or `wait` where it has not.
struct Parcel {
  std::span<const std::byte> sent;
  std::span<std::byte> received;
};

/// Sends parcels without waiting for other ranks. Its methods, and those of its Works, may be called on several threads
/// at a time; those of one lane only on one.
class Messenger {
 public:
  /// How much is best sent at once. The receiver must ask for more first (see mpi_communicator.cpp).
  static constexpr std::int64_t piece_bytes = 32 << 10;

  /// Collectives with a slice that is longer send their slices as such pieces, not through MPI's collectives.
  static constexpr std::int64_t short_slice_bytes = 4 << 10;

  /// Exchanges of one lane meet in the order in which each rank starts them, whatever happens in the other lanes.
  enum class Lane : std::uint8_t {
    first,  ///< these two: for the sums of a strategy
    second,
    third,  ///< these: for the requests of a group
    fourth,
    fifth,
  };
  static constexpr std::size_t lanes = 5;

  virtual ~Messenger() = default;

  /// COLL, but returns at once: each rank of the group calls it as often in this lane. `parcels[r]` is between this
  /// rank and rank r; its own is ignored. The memory of a parcel must stay alive until the Work has been waited for,
  /// and that of `sent` unchanged. `Work::advance` moves the exchange on.
  virtual Work start(std::span<const Parcel> parcels, Lane lane) = 0;

  /// Of a clock that never goes back, in whose time messages travel.
  virtual std::chrono::duration<double> now() const { return std::chrono::steady_clock::now().time_since_epoch(); }
};

}  // namespace lockstep
