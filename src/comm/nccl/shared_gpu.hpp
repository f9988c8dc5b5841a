// Settings for NCCL when several ranks share a GPU.
#pragma once

#include <string>
#include <vector>

namespace lockstep {

struct EnvironmentVariable {
  std::string name;
  std::string value;

  friend bool operator==(const EnvironmentVariable&, const EnvironmentVariable&) = default;
};

/// The variables that let `rank` share a GPU with other ranks of its node.
std::vector<EnvironmentVariable> shared_gpu_environment(int rank);

}  // namespace lockstep
