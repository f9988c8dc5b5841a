#include "core/comm/nccl/shared_gpu.hpp"

#include <cerrno>
#include <cstdlib>
#include <random>

#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>

#include "core/base/system_error.hpp"

namespace lockstep {

std::vector<EnvironmentVariable> shared_gpu_environment(std::uint64_t process) {
  return {
      // NCCL refuses a GPU that it sees twice on one host, so each process poses as a host of its own…
      {"NCCL_HOSTID", fmt::format("lockstep-{:016x}", process)},
      // …and from 2.30 on, NCCL can be told that this is intended. Older versions do not know the variable.
      {"NCCL_MULTI_RANK_GPU_ENABLE", "1"},
      // Both need another GPU for each rank.
      {"NCCL_MNNVL_ENABLE", "0"},
      {"NCCL_NVLS_ENABLE", "0"},
      // These hosts talk through sockets on the one real machine. If there are several, the user says which network.
      {"NCCL_SOCKET_IFNAME", "lo", Setting::unless_set},
      {"NCCL_IB_DISABLE", "1", Setting::unless_set},
      // A kernel that waits for its peer occupies its multiprocessors. With few of them, ranks do not crowd each other
      // out.
      {"NCCL_MAX_CTAS", "2", Setting::unless_set},
  };
}

void set_shared_gpu_environment() {
  // The rank is not known before MPI starts, and MPI starts threads.
  std::random_device random;
  const std::uint64_t process = std::uint64_t{random()} << 32 | random();
  for (const auto& [name, value, setting] : shared_gpu_environment(process)) {
    // NCCL ignores an empty variable.
    if (const char* const set = std::getenv(name.c_str()); setting == Setting::unless_set && set && *set) continue;
    if (::setenv(name.c_str(), value.c_str(), 1) != 0)
      throw CommError{fmt::format("cannot set {}={}: {}", name, value, error_text(errno))};
  }
}

}  // namespace lockstep
