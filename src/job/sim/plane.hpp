// Where simulated ranks meet: for each collective of a plane, who brought what, and when it reaches whom.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <lockstep/job/sim/sim.hpp>

#include "core/control/rounds.hpp"
#include "job/sim/network.hpp"
#include "job/sim/virtual_time.hpp"

namespace lockstep::sim {

class Job;

using Bytes = std::vector<std::byte>;

/// What a rank needs before its part of a collective is done.
struct Needs {
  enum class From { everyone, one, nobody };
  From from = From::everyone;
  int rank = 0;  ///< for `one`
};

/// One sequence of collectives, as a communicator has. The n-th collective of one rank is the n-th of every other. If
/// ranks bring different ones to it, the second to come detects it.
class Plane {
 public:
  /// `name` is for messages: "control", "data". `members` are the ranks that take part.
  Plane(Job& job, std::string name, std::vector<int> members);

  Job& job() const { return job_; }
  const std::string& name() const { return name_; }
  const std::vector<int>& members() const { return members_; }

  /// The place of a rank among the members, and the job's number of the rank at a place, or of several.
  int place_of(int rank) const;
  int rank_at(int place) const { return members_[static_cast<std::size_t>(place)]; }
  std::vector<int> ranks_at(std::span<const int> places) const;

  /// A scheduling point. Then `rank` starts its next collective, with `bytes` for the others. `what` states all that
  /// the ranks must have in common: "all_gather of f32[12]". On a network, its part takes the `route`. Returns the
  /// number of the collective.
  std::uint64_t start(int rank, std::string what, Bytes bytes, const Route& route);

  /// The same for one that `rank` does not wait for: it is not `inside`.
  std::uint64_t start_beside(int rank, std::string what, Bytes bytes, const Route& route);

  /// Waits until what `rank` needs from the others is there. A scheduling point if it has to wait.
  void finish(int rank, std::uint64_t collective, Needs needs);

  /// Whether all have brought what they bring, and it has reached `rank`.
  bool is_here(int rank, std::uint64_t collective) const;

  /// What `from` brought to a collective that this rank has finished but not left.
  const Bytes& brought(std::uint64_t collective, int from) const;

  /// Ends the part of `rank` in the collective. It reads nothing of it any more.
  void leave(int rank, std::uint64_t collective);

  /// The last collective that `rank` has begun and not left: "all_gather of f32[12]". Empty if there is none.
  const std::string& inside(int rank) const { return inside_[index_of(rank)]; }

  /// `rank` begins one, or leaves the last that it has begun.
  void enter(int rank, std::string what);
  void exit(int rank);

  /// On a network: sends the rank at the place `to` the words of that round of an agreement, and looks for those from
  /// another rank.
  void tell(int rank, int to, std::uint64_t agreement, int round, const Rounds::Words& words);
  std::optional<Rounds::Words> hear(int rank, std::uint64_t agreement, int round);

 private:
  struct Arrival {
    Bytes bytes;
    Time here;  ///< when it reaches the others
  };
  struct Waiter {
    int rank;
    Needs needs;
  };
  struct Collective {
    std::string what;
    int first = 0;                                 ///< the rank that started it first
    std::vector<std::optional<Arrival>> arrivals;  ///< by place
    std::vector<Time> reached = {};                ///< on a network, by place: when messages to it have come
    Time last{0};                                  ///< when what has been brought by now has reached all others
    std::vector<Waiter> waiters;
    int arrived = 0;
    int left = 0;
  };

  Collective& at(std::uint64_t collective) { return under_way_[collective - first_]; }
  const Collective& at(std::uint64_t collective) const { return under_way_[collective - first_]; }
  bool have_all_come(const Collective& collective) const;
  Time reaches(const Collective& collective, int rank) const;
  std::optional<Time> complete_at(const Collective& collective, const Waiter& waiter);
  Time send(int rank, Collective& collective, const Route& route) const;
  std::size_t index_of(int rank) const { return static_cast<std::size_t>(place_of(rank)); }

  Job& job_;
  std::string name_;
  std::vector<int> members_;
  std::vector<std::pair<int, int>> places_;  ///< of the members, each with its place, in the job's order
  std::vector<std::uint64_t> next_;          ///< by place
  std::vector<std::string> inside_;          ///< by place
  std::deque<Collective> under_way_;
  std::uint64_t first_ = 0;  ///< the number of the first of `under_way_`

  struct Letter {
    Rounds::Words words;
    Time here;
  };
  std::vector<std::map<std::pair<std::uint64_t, int>, Letter>> letters_;  ///< by place: of agreements, and their rounds
};

}  // namespace lockstep::sim
