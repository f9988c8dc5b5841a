// What one call, or one group of calls, does on a communicator.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <nccl.h>

#include "../core.hpp"
#include "wire.hpp"

namespace cusim {

/// A fault that a test asks for, with the result that it has where it has one.
struct Injected {
  FaultKind kind = FaultKind::none;
  ncclResult_t result = ncclSystemError;
};

/// A call's arguments.
struct Call {
  Header header;          ///< `root` is the peer for a send or a receive
  bool receives = false;  ///< ncclRecv, whose header is that of a send
  const std::byte* from = nullptr;
  std::byte* to = nullptr;
  cudaStream_t stream = nullptr;
  Injected fault;

  /// The function's name.
  const char* name() const { return receives ? "ncclRecv" : name_of(header.kind); }
};

/// A rank, and where its connections are. The one to itself is null.
struct Place {
  int rank = 0;
  int size = 0;
  int device = 0;
  std::vector<std::unique_ptr<Connection>> connections;

  Connection& to(int peer) { return *connections[static_cast<std::size_t>(peer)]; }
  template <class Body>
  void for_each_peer(Body&& body) const {
    for (int peer = 0; peer < size; ++peer)
      if (peer != rank) body(peer);
  }
};

/// Bytes that a call reads or writes in this rank's memory.
struct Range {
  const std::byte* begin = nullptr;
  std::size_t bytes = 0;
};
Range range_read(const Call& call, const Place& place);
Range range_written(const Call& call, const Place& place);

/// Calls that run as one. The collectives come first, in their order; then all sends and receives go on together. Not
/// safe to use from several threads.
class Piece {
 public:
  explicit Piece(std::vector<Call> calls);

  /// ncclInvalidUsage where what is sent to oneself is not received. Ends the process (`found`) where the memory of
  /// two calls overlaps and one of them writes.
  ncclResult_t check(const Place& place, std::string& problem) const;

  /// From now on it is sent and received whenever the connections are pumped.
  void start(Place& place);
  bool is_complete() const;

  /// What is done once everything is here: sums and copies. Only then are the results in their place.
  void finish(const Place& place);

  /// After an abort: marks what it was to write as written. Later work on the stream may still read those bytes, whose
  /// values are undefined.
  void give_up(const Place& place) const;

  const std::vector<Call>& calls() const { return calls_; }
  std::string text() const;
  /// The first call's fault of this kind; null if none has one.
  const Injected* fault(FaultKind kind) const;

 private:
  struct Part {
    Outstanding outstanding;
    std::vector<std::unique_ptr<std::byte[]>> received;  ///< of each other rank, for a sum
  };

  void start_one(const Call& call, Part& part, Place& place);
  void send(Place& place, int peer, const Call& call, Part& part, Range data);
  void tell(Place& place, int peer, const Call& call);
  void expect(Place& place, int peer, const Call& call, Part& part, std::byte* to, std::size_t bytes);
  void expect_word(Place& place, int peer, const Call& call);
  void expect_for_sum(Place& place, int peer, const Call& call, Part& part, std::size_t bytes);
  void finish_one(const Call& call, Part& part, const Place& place);
  void copy_to_self(const Place& place);

  std::vector<Call> calls_;
  std::vector<Part> parts_;
};

}  // namespace cusim
