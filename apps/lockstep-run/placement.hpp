// Where the ranks of a cluster spec run, and what the job must be told for rank and task to agree there.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "apps/lockstep-run/hosts.hpp"
#include "core/cluster/cluster_spec.hpp"

namespace lockstep::run {

/// The tasks of a spec on the hosts that their addresses name. Ranks are numbered as RankMap numbers them: the chief
/// first, then the workers, and within a task by replica.
class Placement {
 public:
  /// ConfigError for a host that mpirun does not take: an IPv6 address, or a name with '_'.
  explicit Placement(const ClusterSpec& spec);

  int ranks() const { return static_cast<int>(tasks_.size()) * ranks_of_task_; }
  int ranks_of_task() const { return ranks_of_task_; }

  /// Each host once, in the order of the tasks, with as many slots as it has ranks.
  std::vector<Host> hosts() const;

  /// The first tasks on `hosts`, as many as `ranks` ranks are, which is a multiple of ranks_of_task(). The workers are
  /// numbered anew, so that without the chief's host the lowest of them has rank 0.
  Placement on(std::span<const Host> hosts, int ranks) const;

  std::vector<std::string> hosts_of_ranks() const;

  /// The same, a line each: a hostfile for mpirun's mapping `seq`. Other mappings put the ranks of this machine first,
  /// whatever the order of hosts (Open MPI 4.1).
  std::string host_lines() const;

  /// A cluster spec of these tasks alone, for TF_CONFIG.
  std::string tf_config() const;

 private:
  struct PlacedTask {
    bool is_chief;
    std::string address;
    std::string host;
  };

  std::vector<PlacedTask> tasks_;
  std::optional<std::string> evaluator_;  ///< its address
  int ranks_of_task_;
};

}  // namespace lockstep::run
