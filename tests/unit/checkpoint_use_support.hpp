// Processes that want the use of a folder, and those that have it.
#pragma once

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>

#include <catch2/catch.hpp>
#include <sys/types.h>
#include <unistd.h>

#include <lockstep/core/base/error.hpp>

#include "support/child_process.hpp"
#include "support/job.hpp"
#include "sync/checkpoint/exclusive_use.hpp"

namespace lockstep::test {

/// Of an open file of its own, as another process's.
inline ExclusiveUse::Options use_in(const TemporaryDirectory& folder, ExclusiveUse::Options::FileSystem file_system,
                                    LeaseTimes times = {.renewed_every = std::chrono::milliseconds{8},
                                                        .lost_after = std::chrono::seconds{60}}) {
  return {.file = folder.path() / ".lock",
          .lease = folder.path() / ".lease",
          .name = "run1",
          .expected = "another",
          .file_system = file_system,
          .lease_times = times};
}

/// What a process is told that wants it too; "none" if it gets it.
inline std::string refusal_of(const ExclusiveUse::Options& options) {
  try {
    const ExclusiveUse use{options};
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "none";
}

inline bool is_held(const ExclusiveUse::Options& options) {
  return refusal_of(options) != "none";
}

/// A process that uses it until it is killed.
class Holder {
 public:
  explicit Holder(const ExclusiveUse::Options& options)
      : mark_{options.file.string() + ".held"}, process_{[&] {
          const ExclusiveUse use{options};
          std::ofstream{mark_};
          ::pause();
          return 0;
        }} {
    REQUIRE(eventually([&] { return std::filesystem::exists(mark_); }));
  }
  ~Holder() { std::filesystem::remove(mark_); }

  pid_t id() const { return process_.id(); }
  void kill() { process_.signal(SIGKILL); }

 private:
  std::filesystem::path mark_;
  ChildProcess process_;
};

}  // namespace lockstep::test
