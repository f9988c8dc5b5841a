// Messenger between the ranks of a group that travel while the ranks compute.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "comm/communicator.hpp"

namespace lockstep {

/// What this rank sends to another one, and where it puts what that one sends. Either may be empty. The other rank's
/// parcel for this rank has the same sizes, the other way round.
struct Parcel {
  std::span<const std::byte> sent;
  std::span<std::byte> received;
};

/// Sends parcels without waiting for other ranks. Not thread-safe.
class Messenger {
 public:
  /// How much is best sent at once: more must be asked for by its receiver first (see mpi_communicator.cpp).
  static constexpr std::int64_t piece_bytes = 32 << 10;

  /// Exchanges of one lane meet in the order in which each rank starts them, whatever happens in the other lane.
  enum class Lane : std::uint8_t { first, second };

  virtual ~Messenger() = default;

  /// COLL, but returns at once: each rank of the group calls it as often in this lane. `parcels[r]` is between this
  /// rank and rank r; its own is ignored. What a parcel names must stay alive until the work has been waited for, what
  /// is sent also unchanged. The Work moves on in `Work::advance`.
  virtual Work start(std::span<const Parcel> parcels, Lane lane) = 0;
};

}  // namespace lockstep
