// What every fault's aftermath is checked for.
#pragma once

#include <chrono>
#include <filesystem>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <catch2/catch.hpp>
#include <fmt/format.h>

#include "support/job.hpp"
#include "support/this_mpi.hpp"

namespace lockstep::test {

/// What mpirun and reading the data may take before the fault.
constexpr std::chrono::seconds start_up{3};

/// What a job leaves in shared memory. Other jobs of this machine come and go in /dev/shm, so MPI's segments are put
/// elsewhere for this one; a name there that is not MPI's is ours.
class SharedMemory {
 public:
  SharedMemory() : before_{names_in("/dev/shm")} {}

  /// For the job's environment.
  Environment::value_type variable() const { return {"OMPI_MCA_btl_vader_backing_directory", segments_.path()}; }

  /// What was left, after a moment for mpirun to clean up.
  std::set<std::string> left() const {
    std::set<std::string> left;
    for (int tries = 0; tries < 100; ++tries) {
      left = names_in(segments_.path());
      for (const std::string& name : names_in("/dev/shm"))
        if (!before_.contains(name) && !is_of_mpi(name)) left.insert(name);
      if (left.empty()) break;
      std::this_thread::sleep_for(std::chrono::milliseconds{100});
    }
    return left;
  }

 private:
  static bool is_of_mpi(const std::string& name) {
    return name.starts_with("vader_segment.") || name.starts_with("sm_segment.") || name.starts_with("mpich_sh") ||
           name.starts_with("Intel_MPI_") || name.starts_with("ucx_shm_");
  }
  static std::set<std::string> names_in(const std::filesystem::path& folder) {
    std::set<std::string> names;
    std::error_code ignored;  // a machine without /dev/shm has nothing in it
    for (const auto& entry : std::filesystem::directory_iterator{folder, ignored})
      names.insert(entry.path().filename());
    return names;
  }

  TemporaryDirectory segments_;
  std::set<std::string> before_;
};

/// One line of the whole job says in which step it was interrupted.
inline void check_interrupted(const std::string& err) {
  const auto lines = lines_starting_with(err, "lockstep:");
  if (interrupted_job_may_be_silent && lines.empty()) return;
  REQUIRE(lines.size() == 1);
  CHECK_THAT(lines.front(), Catch::StartsWith("lockstep: interrupted ") && Catch::Contains(" step "));
}

/// One line of the whole job blames a replica, the right one, and says `told`.
inline void check_blames(const std::string& err, int rank, const std::string& told) {
  CHECK(lines_starting_with(err, "lockstep:").size() == 1);
  const std::vector<std::string> lines = lines_starting_with(err, "lockstep: replica ");
  REQUIRE(lines.size() == 1);
  CHECK_THAT(lines.front(), Catch::StartsWith(fmt::format("lockstep: replica {} (", rank)));
  CHECK_THAT(lines.front(), Catch::Contains(told));
}

}  // namespace lockstep::test
