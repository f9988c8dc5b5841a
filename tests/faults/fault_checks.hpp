// What every fault's aftermath is checked for.
#pragma once

#include <chrono>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include <catch2/catch.hpp>
#include <fmt/format.h>

#include "support/job.hpp"

namespace lockstep::test {

/// What mpirun and reading the data may take before the fault, on a busy machine.
constexpr std::chrono::seconds start_up{3};

/// The names in /dev/shm when it is made: MPI's segments and ours.
class SharedMemory {
 public:
  SharedMemory() : before_{names()} {}

  /// The names that came since.
  std::vector<std::string> added() const {
    std::vector<std::string> added;
    for (const std::string& name : names())
      if (!before_.contains(name)) added.push_back(name);
    return added;
  }

 private:
  static std::set<std::string> names() {
    std::set<std::string> names;
    std::error_code ignored;  // a machine without /dev/shm has nothing in it
    for (const auto& entry : std::filesystem::directory_iterator{"/dev/shm", ignored})
      names.insert(entry.path().filename());
    return names;
  }
  std::set<std::string> before_;
};

/// One line of the whole job blames a replica, the right one, and says `told`.
inline void check_blames(const std::string& err, int rank, const std::string& told) {
  CHECK(lines_starting_with(err, "lockstep:").size() == 1);
  const std::vector<std::string> lines = lines_starting_with(err, "lockstep: replica ");
  REQUIRE(lines.size() == 1);
  CHECK_THAT(lines.front(), Catch::StartsWith(fmt::format("lockstep: replica {} (", rank)));
  CHECK_THAT(lines.front(), Catch::Contains(told));
}

}  // namespace lockstep::test
