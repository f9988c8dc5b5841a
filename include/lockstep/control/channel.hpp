// How control messages travel. Host memory, blocking, never shared with the data plane.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace lockstep {

/// The control plane of a group of ranks. Every method but rank and size is collective and blocking.
class ControlChannel {
 public:
  virtual ~ControlChannel() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;

  /// The larger of each word over all ranks. The one call of an agreement; everything else is for disagreements and
  /// for starting.
  virtual std::array<std::uint64_t, 2> max(std::array<std::uint64_t, 2> words) = 0;

  /// `all` gets everyone's `mine` in rank order; all are of one size.
  virtual void all_gather(std::span<const std::byte> mine, std::span<std::byte> all) = 0;

  /// `bytes` of `root` overwrite everyone's.
  virtual void broadcast(std::span<std::byte> bytes, int root) = 0;
};

/// One rank.
std::unique_ptr<ControlChannel> make_local_channel();

/// All ranks of the job, on a communicator of its own. Collective over the job; MPI must run for as long as it lives.
std::unique_ptr<ControlChannel> make_mpi_channel();

}  // namespace lockstep
