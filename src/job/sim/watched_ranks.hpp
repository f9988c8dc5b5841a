// The watchdogs of a job, in virtual time: how heartbeats grow with the number of nodes, and who names a rank that
// fails.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace lockstep::sim {

/// Many ranks on many nodes. What their main threads do is played: they compute, and meet each other in one agreement
/// after the other. Tables, heartbeats, rounds of the watchdogs and their judgements are those of real jobs, over a
/// network that delays and loses datagrams. The same options and faults bring the same events.
class WatchedRanks {
 public:
  using Seconds = std::chrono::duration<double>;

  struct Options {
    int nodes = 2;
    int ranks_a_node = 1;
    Seconds stall_timeout{10};
    Seconds tick{0.05};
    Seconds step{0.3};              ///< from one agreement to the next, at most
    Seconds longest_latency{2e-3};  ///< of a datagram
    double loss = 0;                ///< the share of datagrams that is lost
    std::uint64_t seed = 1;
  };

  enum class Fault {
    dies,     ///< its process ends
    stops,    ///< its process shows no more life
    is_late,  ///< it computes for ever
    cut_off,  ///< its node is out of reach of the others
  };

  /// What one rank says of the job, when, in seconds since the start.
  struct Line {
    int rank;
    double at;
    std::string text;
  };

  /// Datagrams that ranks sent, for each rank and second.
  struct Traffic {
    double mean = 0;
    double most = 0;  ///< of any rank
  };

  explicit WatchedRanks(const Options& options);
  WatchedRanks(const WatchedRanks&) = delete;
  ~WatchedRanks();

  void strike(int rank, Fault fault);

  /// Lets time pass. A rank that has ended the job for itself does nothing more.
  void run_for(Seconds time);

  /// The same, until somebody says something or `most` has passed, and then for a little longer, in which others may.
  void run_until_said(Seconds most);

  double now() const;
  const std::vector<Line>& lines() const;

  /// Since the last call.
  Traffic take_traffic();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep::sim
