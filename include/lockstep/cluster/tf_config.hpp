// TF_CONFIG: a cluster spec, and possibly the task that the process was meant to be.
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include <lockstep/cluster/cluster_spec.hpp>
#include <lockstep/cluster/rank_map.hpp>

namespace lockstep {

struct TfConfig {
  ClusterSpec cluster;
  std::optional<Task> task;  ///< none where the text has no "task", or an empty one
};

/// ConfigError as ClusterSpec::parse, and where "task" is malformed or not in the cluster. As in TensorFlow,
/// the task's index may be a number or its digits in a string.
TfConfig parse_tf_config(std::string_view json, std::string_view source = "TF_CONFIG");

/// `task_of_rank` has what each rank's own TF_CONFIG says, one entry per rank. A task that is the same on all
/// ranks was exported to all of them (mpirun -x) and means nothing; otherwise every rank that has one must be
/// that task: ConfigError, naming the first rank that is not.
void require_tasks_match_ranks(std::span<const std::optional<Task>> task_of_rank, const RankMap& ranks);

}  // namespace lockstep
