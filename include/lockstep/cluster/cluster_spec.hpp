// The cluster spec: which tasks a job has, at which addresses, and how many replicas each runs.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// One entry of the cluster spec. A task runs `replicas_per_task` ranks, all on one node.
struct Task {
  std::string type;  ///< "chief", "worker" or "evaluator"
  int index = 0;

  friend bool operator==(const Task&, const Task&) = default;
};

/// "worker:3".
std::string to_string(const Task& task);

/// The bytes of a cluster-spec file: what rank 0 reads and broadcasts, so that all ranks parse the same.
/// ConfigError, naming the file, if it is missing, a directory, empty, unreadable or larger than 16 MiB.
std::string read_cluster_spec(const std::filesystem::path& file);

/// A checked cluster spec. Its chief and workers are ranks; an evaluator is checked, but is none and is not
/// counted.
///
/// The text is JSON in the shape of TF_CONFIG:
///
///     {"cluster": {"chief": ["a:2222"], "worker": ["b:2222", "c:2222"]}, "replicas_per_task": 4}
///
/// The tasks of a type are a list of addresses, or an object from index to address whose indices are exactly 0 to n-1.
/// At most one chief and one evaluator; no address twice; `replicas_per_task` is 1 unless given. TF_CONFIG's other keys
/// (environment, rpc_layer, session_master, task) are accepted and not used; any other key is an error.
class ClusterSpec {
 public:
  /// ConfigError in one line that starts with `source` (a file's name, "TF_CONFIG") and names the key and
  /// what was expected there.
  static ClusterSpec parse(std::string_view json, std::string_view source = "cluster spec");

  /// read_cluster_spec and parse.
  static ClusterSpec from_file(const std::filesystem::path& file);

  /// What a job without a spec is: worker 0 to ranks-1, one replica each. The addresses are placeholders.
  static ClusterSpec one_task_per_rank(int ranks);

  /// The chief, if there is one, then the workers by number. No evaluator.
  std::vector<Task> tasks() const;

  bool has_chief() const { return !chiefs_.empty(); }
  bool has_evaluator() const { return !evaluators_.empty(); }
  int num_workers() const { return static_cast<int>(workers_.size()); }
  int num_tasks() const { return static_cast<int>(chiefs_.size() + workers_.size()); }
  int replicas_per_task() const { return replicas_per_task_; }

  /// Tasks times replicas per task: the ranks that the job must have.
  int world_size() const { return num_tasks() * replicas_per_task_; }

  /// As written in the spec. Any task of the spec, an evaluator too; InvalidArgument for one it does not
  /// have.
  const std::string& address(const Task& task) const;

  bool contains(const Task& task) const;

  /// Where the spec came from: the first word of every message about it.
  const std::string& source() const { return source_; }

  /// One text for all specs that mean the same, whatever their layout: what ranks compare. It parses again.
  std::string canonical() const;

 private:
  ClusterSpec() = default;

  const std::vector<std::string>* job(std::string_view type) const;

  std::string source_;
  std::vector<std::string> chiefs_;  // addresses, at the index of their task
  std::vector<std::string> workers_;
  std::vector<std::string> evaluators_;
  int replicas_per_task_ = 1;
};

}  // namespace lockstep
