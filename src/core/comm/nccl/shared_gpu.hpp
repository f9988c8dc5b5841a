// Settings for NCCL when several ranks share a GPU.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

/// A setting that sharing needs, or one that only suits it.
enum class Setting : std::uint8_t { needed, unless_set };

struct EnvironmentVariable {
  std::string name;
  std::string value;
  Setting setting = Setting::needed;  ///< `unless_set` leaves what the user has chosen

  friend bool operator==(const EnvironmentVariable&, const EnvironmentVariable&) = default;
};

/// The variables that let a process share a GPU with others of its node. `process` is a number that no other process
/// has.
std::vector<EnvironmentVariable> shared_gpu_environment(std::uint64_t process);

/// allow_shared_gpu of core/comm/backends.hpp: sets them.
void set_shared_gpu_environment();

}  // namespace lockstep
