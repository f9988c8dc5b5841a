// Which devices ranks are to use, as the user lists them.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/cluster/cluster_spec.hpp"
#include "core/cluster/device_binding.hpp"
#include "core/cluster/rank_map.hpp"

namespace lockstep {

/// The devices of every node, or those of each task. The first form lists one for each rank of a node: "0,2",
/// "GPU:0,GPU:2", or UUIDs as nvidia-smi prints them, "GPU-5d0b…", of which the beginning is enough. The second names
/// tasks, "/job:worker/task:0/device:GPU:2,/job:worker/task:1/device:GPU:0", and lists one for each replica of every
/// task. Numbers are those of the GPUs that a rank sees (CUDA_VISIBLE_DEVICES). All devices are GPUs, or all are CPU:0.
class DeviceList {
 public:
  /// Lists nothing, so devices are assigned in order.
  DeviceList() = default;

  /// The entries are separated by commas. What a name leaves out is 0: "GPU" is GPU:0. A list is of tasks if its first
  /// entry has a job other than "localhost". A one-line ConfigError, which begins with `source`, for an empty list or
  /// entry, a name that is malformed, another type than CPU and GPU (in capitals), entries of both types, and a list
  /// that has tasks in some entries only.
  static DeviceList parse(std::string_view text, std::string_view source = "--devices");

  bool empty() const { return devices_.empty(); }

  /// Of the listed devices.
  DeviceKind kind() const { return devices_.front().gpu ? DeviceKind::cuda : DeviceKind::cpu; }

  /// The GPUs of this list for the given ranks of one node, in that order; empty if it lists none. ConfigError unless
  /// it has as many devices as the node, or each of its tasks, has ranks, and for a task that is not in the job.
  std::vector<ChosenGpu> gpus_of(const std::vector<int>& ranks_of_node, const RankMap& ranks) const;

 private:
  struct Listed {
    std::optional<Task> task;
    std::optional<ChosenGpu> gpu;  ///< empty for the CPU
  };

  std::string source_;
  std::vector<Listed> devices_;
};

}  // namespace lockstep
