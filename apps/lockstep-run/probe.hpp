// What is wrong with hosts before a job starts there.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "apps/lockstep-run/hosts.hpp"

namespace lockstep::run {

struct ProbeOptions {
  std::vector<std::string> mpirun;  ///< with its options
  std::vector<Host> hosts;
  std::string program;                             ///< of the job
  bool has_version = true;                         ///< it answers to --version
  std::vector<std::filesystem::path> paths = {};   ///< that must be there
  bool needs_gpus = false;                         ///< one for each rank
  std::int64_t shared_bytes_of_rank = 16ll << 20;  ///< room that a rank wants in /dev/shm
};

/// Blocking, for 10 s or a little more. Asks all hosts, side by side, whether they have the program, all in one
/// version, and the rest. Returns a line for each host that lacks something, in the order of the hosts.
std::vector<std::string> probe(const ProbeOptions& options);

}  // namespace lockstep::run
