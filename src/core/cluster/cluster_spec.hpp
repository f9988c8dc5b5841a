// The cluster spec: which tasks a job has, at which addresses, and how many replicas each task runs.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
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

/// The bytes of a cluster-spec file. LOCAL: rank 0 reads the file and broadcasts the bytes, so that all ranks parse the
/// same text. ConfigError, naming the file, if it is missing, a directory, empty, unreadable or larger than 16 MiB.
std::string read_cluster_spec(const std::filesystem::path& file);

/// A checked cluster spec. Its chief and workers are ranks. An evaluator is checked, but is not a rank and is not
/// counted.
///
/// The text is JSON in the shape of TF_CONFIG:
///
///     {"cluster": {"chief": ["a:2222"], "worker": ["b:2222", "c:2222"]}, "replicas_per_task": 4}
///
/// The tasks of a type are a list of addresses, or an object from index to address whose indices are exactly 0 to n-1.
/// There is at least one chief or worker, at most one chief and at most one evaluator. No address occurs twice.
/// `replicas_per_task` defaults to 1. TF_CONFIG's other keys (environment, rpc_layer, session_master, task) are
/// accepted and ignored; any other key is an error.
class ClusterSpec {
 public:
  /// Throws a one-line ConfigError that starts with `source` (a file's name, "TF_CONFIG") and names the key and what
  /// was expected there.
  static ClusterSpec parse(std::string_view json, std::string_view source = "cluster spec");

  /// Reads the file with read_cluster_spec, then parses it.
  static ClusterSpec from_file(const std::filesystem::path& file);

  /// The spec of a job without one: workers 0 to ranks-1, one replica each. The addresses are placeholders.
  /// InvalidArgument unless `ranks` is positive.
  static ClusterSpec one_task_per_rank(int ranks);

  /// The chief, if any, then the workers by number. No evaluator.
  std::vector<Task> tasks() const;
  Task task(int number) const;  ///< that of this number among them, which must be below `num_tasks`

  bool has_chief() const { return !job("chief").empty(); }
  bool has_evaluator() const { return !job("evaluator").empty(); }
  int num_workers() const { return static_cast<int>(job("worker").size()); }
  int num_tasks() const { return static_cast<int>(job("chief").size() + job("worker").size()); }
  int replicas_per_task() const { return replicas_per_task_; }

  /// The number of ranks that the job must have: tasks times replicas per task.
  int world_size() const { return num_tasks() * replicas_per_task_; }

  /// The address of `task`, as written in the spec. Any task of the spec will do, including an evaluator;
  /// InvalidArgument for a task that the spec does not have.
  const std::string& address(const Task& task) const;

  /// Includes evaluators.
  bool contains(const Task& task) const;

  /// Where the spec came from. Every message about it starts with this.
  const std::string& source() const { return source_; }

  /// The spec as text, for comparison between ranks: the same for all specs with the same tasks, addresses (as written)
  /// and replicas, whatever their layout. It can be parsed again.
  std::string canonical() const;

 private:
  ClusterSpec() = default;

  /// The addresses of the tasks of a type, at their index. None of another type.
  const std::vector<std::string>& job(std::string_view type) const;

  std::string source_;
  std::map<std::string, std::vector<std::string>, std::less<>> jobs_;  ///< by type
  int replicas_per_task_ = 1;
};

}  // namespace lockstep
