// How control messages travel: in host memory, blocking, and never on the data plane.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

namespace lockstep {

/// The control plane of a group of ranks. Every method except rank and size is COLL and blocking, or starts what is.
/// A call that blocks on one rank and one that starts on another meet each other.
class ControlChannel {
 public:
  /// What was started. Nobody else touches its memory, which stays alive until it is done or this object is destroyed.
  class Exchange {
   public:
    virtual ~Exchange() = default;

    /// LOCAL, never blocks. Moves it on as far as the others have come. Whether it is done.
    virtual bool advance() = 0;
  };

  virtual ~ControlChannel() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;

  /// The maximum of each word over all ranks: an agreement. The others are for disagreements and start-up.
  virtual std::array<std::uint64_t, 2> max(std::array<std::uint64_t, 2> words) = 0;

  /// Fills `all` with every rank's `mine`, in rank order. All are of one size.
  virtual void all_gather(std::span<const std::byte> mine, std::span<std::byte> all) = 0;

  /// `root`'s bytes overwrite every rank's.
  virtual void broadcast(std::span<std::byte> bytes, int root) = 0;

  // The same, COLL, but they return at once. Nothing else of this channel may be called before they are done, except
  // `start_max`: any number of these may be under way, and each rank starts them in one order.

  /// The maximum replaces `words`.
  virtual std::unique_ptr<Exchange> start_max(std::array<std::uint64_t, 2>& words) = 0;
  virtual std::unique_ptr<Exchange> start_all_gather(std::span<const std::byte> mine, std::span<std::byte> all) = 0;
  virtual std::unique_ptr<Exchange> start_broadcast(std::span<std::byte> bytes, int root) = 0;

  /// COLL over `members`, which are ranks of this channel, and which this rank is one of; blocking. Their channel, in
  /// that order. `key` is the same on all of them, and tells what they make from what others of these ranks make.
  virtual std::unique_ptr<ControlChannel> subset(std::span<const int> members, std::uint64_t key) = 0;
};

/// An exchange that was done when its call returned.
std::unique_ptr<ControlChannel::Exchange> make_done_exchange();

/// A group of one rank.
std::unique_ptr<ControlChannel> make_local_channel();

/// COLL over `guest`, which is MPI_Comm_c2f of a communicator, or over the job if that is empty. Its ranks, on a
/// communicator of its own. MPI must run as long as the channel lives.
std::unique_ptr<ControlChannel> make_mpi_channel(std::optional<int> guest = {});

}  // namespace lockstep
