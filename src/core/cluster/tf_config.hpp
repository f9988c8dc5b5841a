// TF_CONFIG: a cluster spec and, optionally, the task that the process was meant to be.
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "core/cluster/cluster_spec.hpp"
#include "core/cluster/rank_map.hpp"

namespace lockstep {

struct TfConfig {
  ClusterSpec cluster;
  std::optional<Task> task;  ///< empty if the text has no "task", or an empty one
};

/// ConfigError as for ClusterSpec::parse, and if "task" is malformed or not in the cluster. As in TensorFlow, the
/// task's index may be a number or a string of digits.
TfConfig parse_tf_config(std::string_view json, std::string_view source = "TF_CONFIG");

/// `task_of_rank` has one entry per rank: the task in that rank's own TF_CONFIG. A task that is the same on all ranks
/// was exported to all of them (mpirun -x) and means nothing. Otherwise every rank that has a task must be that task;
/// ConfigError, naming the first rank that is not.
void require_tasks_match_ranks(std::span<const std::optional<Task>> task_of_rank, const RankMap& ranks);

}  // namespace lockstep
