// Where simulated ranks meet: for each collective of a plane, who brought what, and when it reaches whom.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <lockstep/job/sim/sim.hpp>

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

  Job& job() { return job_; }
  const std::string& name() const { return name_; }
  const std::vector<int>& members() const { return members_; }

  /// The place of a rank among the members, and the job's number of the rank at a place, or of several.
  int place_of(int rank) const;
  int rank_at(int place) const { return members_[static_cast<std::size_t>(place)]; }
  std::vector<int> ranks_at(std::span<const int> places) const;

  /// A scheduling point. Then `rank` starts its next collective, with `bytes` for the others. `what` states all that
  /// the ranks must have in common: "all_gather of f32[12]". Returns the number of the collective.
  std::uint64_t start(int rank, std::string what, Bytes bytes);

  /// The same for one that `rank` does not wait for: it is not `inside`.
  std::uint64_t start_beside(int rank, std::string what, Bytes bytes);

  /// Waits until what `rank` needs from the others is there. A scheduling point if it has to wait.
  void finish(int rank, std::uint64_t collective, Needs needs);

  /// Whether all have brought what they bring, and it has reached everyone.
  bool is_here(std::uint64_t collective) const;

  /// What `from` brought to a collective that this rank has finished but not left.
  const Bytes& brought(std::uint64_t collective, int from) const;

  /// Ends the part of `rank` in the collective. It reads nothing of it any more.
  void leave(int rank, std::uint64_t collective);

  /// The last collective that `rank` has begun and not left: "all_gather of f32[12]". Empty if there is none.
  const std::string& inside(int rank) const { return inside_[static_cast<std::size_t>(rank)]; }

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
    int first = 0;  ///< the rank that started it first
    std::vector<std::optional<Arrival>> arrivals;
    std::vector<Waiter> waiters;
    int arrived = 0;
    int left = 0;
  };

  Collective& at(std::uint64_t collective) { return under_way_[collective - first_]; }
  const Collective& at(std::uint64_t collective) const { return under_way_[collective - first_]; }
  bool have_all_come(const Collective& collective) const;
  std::optional<Time> complete_at(const Collective& collective, const Waiter& waiter);

  Job& job_;
  std::string name_;
  std::vector<int> members_;
  std::vector<std::uint64_t> next_;  ///< of each rank of the job
  std::vector<std::string> inside_;  ///< of each rank of the job
  std::deque<Collective> under_way_;
  std::uint64_t first_ = 0;  ///< the number of the first of `under_way_`
};

}  // namespace lockstep::sim
