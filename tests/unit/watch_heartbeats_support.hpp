// Every rank of a job that has several nodes in one process, and a watchdog over them.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "core/watch/heartbeat_sockets.hpp"
#include "core/watch/heartbeats.hpp"
#include "core/watch/watchdog.hpp"
#include "support/child_process.hpp"
#include "support/phase_rows.hpp"

namespace lockstep::test {

/// 0, 1, 2 and so on, so many: as `lowest` says of nodes of one rank each.
inline std::vector<int> numbers_to(int count) {
  std::vector<int> numbers(static_cast<std::size_t>(count));
  std::iota(numbers.begin(), numbers.end(), 0);
  return numbers;
}

/// Changes what a rank is told of the addresses of all ranks.
using Addresses = std::vector<HeartbeatAddress>;
using Rewire = std::function<void(int rank, Addresses& addresses)>;

/// Every rank of a job in this process, each with a table of its own, as if it were alone on its node; those of
/// `lowest` say who shares one, as far as heartbeats go.
struct Ranks {
  explicit Ranks(std::vector<int> lowest, const Rewire& rewire = {}) : nodes{lowest} {
    const int count = nodes.ranks();
    for (int rank = 0; rank < count; ++rank) {
      SharedMemory memory = SharedMemory::create(PhaseTable::bytes_for(count));
      memory.take_over();
      tables.emplace_back(std::move(memory), count, rank);
      heartbeats.push_back(std::make_unique<Heartbeats>(std::make_unique<HeartbeatSockets>()));
      addresses.push_back(heartbeats.back()->address());
    }
    for (int rank = 0; rank < count; ++rank) {
      Addresses told = addresses;
      if (rewire) rewire(rank, told);
      beats(rank).connect(nodes, rank, told, key);
    }
  }

  PhaseTable& table(int rank) { return tables[static_cast<std::size_t>(rank)]; }
  Heartbeats& beats(int rank) { return *heartbeats[static_cast<std::size_t>(rank)]; }

  /// One that beats by itself. It listens too, as one must to whom another connects.
  void beat(int rank) {
    table(rank).beat();
    beats(rank).send(table(rank));
    beats(rank).receive(table(rank));
  }

  /// Whether `rank` hears something new of `other` within a second or two.
  bool hears(int rank, int other) {
    const auto before = table(rank).read(other).heartbeat;
    return eventually(
        [&] {
          beat(other);
          beats(rank).send(table(rank));
          beats(rank).receive(table(rank));
          return table(rank).read(other).heartbeat > before;
        },
        std::chrono::seconds{2});
  }

  HeartbeatKey key = make_heartbeat_key();
  NodeMap nodes;
  Addresses addresses;
  std::vector<PhaseTable> tables;
  std::vector<std::unique_ptr<Heartbeats>> heartbeats;
};

/// One rank's watchdog over ranks that the test plays.
class WatchedRank {
 public:
  WatchedRank(Ranks& ranks, double stall_timeout, int rank = 0)
      : watchdog_{std::in_place,
                  ranks.table(rank),
                  names(ranks.nodes.ranks()),
                  WatchdogOptions{.stall_timeout = std::chrono::duration<double>{stall_timeout}},
                  [this](Error::ExitCode code, Reach reach) {
                    code_ = code;
                    reach_ = reach;
                    ++ends_;
                  },
                  &ranks.beats(rank)} {}

  int ends() const { return ends_; }
  Error::ExitCode code() const { return code_; }
  Reach reach() const { return reach_; }
  const std::string& line() { return stderr_.text(); }

 private:
  static std::vector<std::string> names(int ranks) {
    std::vector<std::string> names;
    for (int rank = 0; rank < ranks; ++rank) names.push_back("replica " + std::to_string(rank));
    return names;
  }

  CapturedStderr stderr_;
  std::atomic<Error::ExitCode> code_{Error::ExitCode::done};
  std::atomic<Reach> reach_{Reach::whole_job};
  std::atomic<int> ends_{0};
  std::optional<Watchdog> watchdog_;
};

}  // namespace lockstep::test
