// How control messages travel: in host memory, blocking, and never on the data plane.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

namespace lockstep {

/// The control plane of a group of ranks. Every method except rank and size is COLL and blocking.
class ControlChannel {
 public:
  virtual ~ControlChannel() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;

  /// The maximum of each word over all ranks. An agreement is this one call; the other methods are for disagreements
  /// and for start-up.
  virtual std::array<std::uint64_t, 2> max(std::array<std::uint64_t, 2> words) = 0;

  /// Fills `all` with every rank's `mine`, in rank order. All are of one size.
  virtual void all_gather(std::span<const std::byte> mine, std::span<std::byte> all) = 0;

  /// `root`'s bytes overwrite every rank's.
  virtual void broadcast(std::span<std::byte> bytes, int root) = 0;

  /// COLL over `members`, which are ranks of this channel, and which this rank is one of; blocking. Their channel, in
  /// that order. `key` is the same on all of them, and tells what they make from what others of these ranks make.
  virtual std::unique_ptr<ControlChannel> subset(std::span<const int> members, std::uint64_t key) = 0;
};

/// A group of one rank.
std::unique_ptr<ControlChannel> make_local_channel();

/// COLL over `guest`, which is MPI_Comm_c2f of a communicator, or over the job if that is empty. Its ranks, on a
/// communicator of its own. MPI must run as long as the channel lives.
std::unique_ptr<ControlChannel> make_mpi_channel(std::optional<int> guest = {});

}  // namespace lockstep
