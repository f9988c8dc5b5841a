// The network of a simulated job: what messages take on it, and how many each rank sends.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <vector>

#include <lockstep/job/sim/sim.hpp>

#include "job/sim/virtual_time.hpp"

namespace lockstep::sim {

/// What joins the ranks. A rank hands its messages over one after the other; those of a node's ranks to other nodes
/// share its wire, and so do those that come.
struct Links {
  struct Link {
    Time latency;
    double bytes_per_second;
  };
  Link within{std::chrono::nanoseconds{500}, 1e10};  ///< from one rank of a node to another
  Link between{std::chrono::microseconds{5}, 1.25e9};
  Time overhead = std::chrono::nanoseconds{200};  ///< of the rank that sends, for each message

  /// From the end of a rank to its being known everywhere.
  Time notice = std::chrono::milliseconds{50};

  /// Longer messages are not carried: only their sizes count, and memory stays as it is where they arrive. So ranks may
  /// share the memory of what is too large to keep once for each.
  std::size_t carried_bytes = std::numeric_limits<std::size_t>::max();
};

/// What a rank has sent.
struct Sent {
  std::int64_t messages = 0, bytes = 0;

  Sent& operator+=(const Sent& other) {
    messages += other.messages;
    bytes += other.bytes;
    return *this;
  }
  Sent operator+(const Sent& other) const { return {messages + other.messages, bytes + other.bytes}; }
  Sent operator-(const Sent& other) const { return {messages - other.messages, bytes - other.bytes}; }
};

struct Traffic {
  Sent agreements;   ///< in agreements
  Sent own;          ///< in other messages of this library's own
  Sent collectives;  ///< inside MPI's own collectives

  Traffic operator-(const Traffic& other) const {
    return {agreements - other.agreements, own - other.own, collectives - other.collectives};
  }
};

class Network {
 public:
  Network(int ranks, int ranks_per_node, const Links& links);

  const Links& links() const { return links_; }

  /// `from` sends `to` a message now, of which `sent` is told. Returns when it has come.
  Time send(int from, int to, std::int64_t bytes, Time now, Sent& sent);

  Traffic& of(int rank) { return traffic_[static_cast<std::size_t>(rank)]; }
  const Traffic& of(int rank) const { return traffic_[static_cast<std::size_t>(rank)]; }

  /// How long messages of so many bytes take that follow each other, between nodes if `ranks` are on several.
  Time chain(const std::vector<int>& ranks, int messages, std::int64_t bytes) const;

 private:
  int node_of(int rank) const { return rank / ranks_per_node_; }

  Links links_;
  int ranks_per_node_;
  std::vector<Traffic> traffic_;
  std::vector<Time> rank_free_, wire_out_free_, wire_in_free_;
};

/// How a rank's part of a collective travels where there is a network.
struct Route {
  /// How many bytes go to the rank at each place. Empty for an algorithm of MPI's, which is known by what a rank sends,
  /// and by how long the last rank to come is waited for.
  std::function<std::int64_t(int place)> bytes_to = {};
  std::int64_t longest_message = std::numeric_limits<std::int64_t>::max();  ///< what is longer goes in several
  bool is_of_mpi = false;                                                   ///< the messages are counted as MPI's

  Sent sent = {};
  Time length{0};
};

/// As `run`, but messages take what they take on `network`, which outlives the call, in place of random times.
void run_on(Network& network, Options options, std::function<void(Strategy&, int rank)> body);

}  // namespace lockstep::sim
