// What is wrong with hosts before a job starts there.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "apps/lockstep-run/hosts.hpp"

namespace lockstep::run {

struct ProbeOptions {
  std::vector<std::string> mpirun;  ///< with its options
  std::vector<Host> hosts;
  std::string program;                                            ///< of the job
  bool has_version = true;                                        ///< it answers to --version
  std::vector<std::filesystem::path> paths = {};                  ///< that must be there
  bool needs_gpus = false;                                        ///< one for each rank
  std::int64_t shared_bytes_of_rank = 16ll << 20;                 ///< room that a rank wants in /dev/shm
  std::chrono::milliseconds patience = std::chrono::seconds{10};  ///< with a host
  /// Waits so long. False ends the probe, which then says nothing.
  std::function<bool(std::chrono::milliseconds)> wait = [](std::chrono::milliseconds time) {
    std::this_thread::sleep_for(time);
    return true;
  };
};

/// Blocking: `patience` for every 32 silent hosts, and once more for those where mpirun failed. Asks whether
/// all hosts have the program in the same version, and the rest. Returns a line for each host that lacks something, in
/// the order of the hosts.
std::vector<std::string> probe(const ProbeOptions& options);

}  // namespace lockstep::run
