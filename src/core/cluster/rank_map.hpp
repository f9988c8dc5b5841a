// Which rank is which replica of which task.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "core/cluster/cluster_spec.hpp"
#include "core/cluster/device_binding.hpp"

namespace lockstep {

/// Numbers the ranks: the chief first, then the workers by number, and within a task by replica. Replica id = rank.
/// Methods that take a rank outside the job throw InvalidArgument.
class RankMap {
 public:
  /// ConfigError, giving both numbers, if the spec does not make exactly `world_size` ranks.
  RankMap(ClusterSpec spec, int world_size);

  int size() const { return spec_.world_size(); }
  const ClusterSpec& spec() const { return spec_; }

  Task task_of(int rank) const;
  int replica_in_task(int rank) const;

  /// "/job:worker/task:1/device:GPU:0". GPUs are numbered within their task, unless the user chose one by its `number`.
  /// The CPU is one device, CPU:0, which all replicas of a task share.
  std::string device_name(int rank, DeviceKind kind, std::optional<int> number = {}) const;

  /// "replica 2 (worker:1, host b)": the beginning of every sentence about a replica. With a rank in MPI_COMM_WORLD
  /// that has another number: "replica 2 (worker:1, world rank 5, host b)".
  std::string describe_replica(int rank, std::string_view host, std::optional<int> world_rank = {}) const;

  /// `host_of_rank` has one entry per rank. ConfigError, naming the task and two of its hosts, if a task spans several
  /// nodes.
  void require_tasks_on_one_node(std::span<const std::string> host_of_rank) const;

  /// ConfigError if the spec names a node of the job for a task that runs on another one. Addresses are only names: an
  /// alias, an IP address or a repeated localhost says nothing.
  void require_tasks_where_named(std::span<const std::string> host_of_rank) const;

  /// A warning, if a task runs on the node that the spec names for another task, and the node named for itself is not
  /// in the job. It may be an alias. Empty if there is no such task.
  std::string doubt_about_nodes(std::span<const std::string> host_of_rank) const;

 private:
  bool runs_where_named(int rank, std::span<const std::string> host_of_rank) const;
  std::string named_node(int rank) const;  ///< the address of its task, without the port
  void require_rank(int rank) const;

  ClusterSpec spec_;
};

}  // namespace lockstep
