// Calls about files that fail, in a test program that links file_faults.cpp.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

namespace lockstep::test {

/// While it lives, counts the calls of this process about files whose path contains `place` (open, read, pread, write,
/// fsync, ftruncate, rename, unlink, mkdir), and lets one of them go wrong. fsync does nothing meanwhile. One at a
/// time.
class FileFault {
 public:
  struct Plan {
    std::string place;
    std::int64_t call = -1;  ///< the number of the call, from 0; none with -1
    /// What the call says in place of doing anything. 0: it is interrupted once (EINTR) and then, if it reads or
    /// writes, takes one byte only.
    int error = 0;
    /// Only calls of this name count, such as "read"; empty: all.
    std::string name = {};
  };

  explicit FileFault(Plan plan);
  FileFault(const FileFault&) = delete;
  ~FileFault();

  std::int64_t calls() const { return calls_; }

  /// Whether one lives.
  static bool is_on();

  /// For the calls of file_faults.cpp. Whether the one of that name about `path` goes wrong now.
  bool takes(const char* name, const std::string& path);
  const Plan& plan() const { return plan_; }

 private:
  Plan plan_;
  std::atomic<std::int64_t> calls_{0};
};

/// Calls `attempt` without a fault, and then with one in each of its calls about files in `place`, the first, the
/// second and so on.
void for_each_file_fault(const std::string& place, int error, const std::function<void(std::int64_t call)>& attempt);

}  // namespace lockstep::test
