// TCP as a program without MPI would use it: what the links between ranks carry.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "apps/lockstep-bench/mpi_baseline.hpp"
#include "core/base/descriptor.hpp"

namespace lockstep::bench {

/// A connection between any two ranks of the job. Methods that are not COLL are called by two ranks for each other.
/// CommError if a call fails, or if nothing moves for a minute.
class TcpStreams {
 public:
  /// COLL. Connects through `network`; if that is empty, through the network that MPI is told to use; otherwise by this
  /// host's first address that is not loopback. Ranks of one node use loopback. ConfigError if this host has no address
  /// in `network`.
  TcpStreams(MpiBaseline& mpi, const std::string& network);

  /// COLL. Sends `bytes` to every other rank and receives as many from it, all at a time.
  void exchange(std::int64_t bytes);

  /// Of Linux's names: "cubic", "bbr".
  std::string congestion_control() const;

  void send(int to, std::int64_t bytes);
  void receive(int from, std::int64_t bytes);

 private:
  /// What is still to be sent to a rank, and to be received from it.
  struct Left {
    std::int64_t sent = 0, received = 0;
  };
  void move(std::vector<Left> left);
  std::vector<Left> nothing() const { return std::vector<Left>(streams_.size()); }

  std::vector<Descriptor> streams_;  ///< by rank; none to itself
  std::vector<std::byte> out_, in_;  ///< one piece: what is sent is the same throughout
};

}  // namespace lockstep::bench
