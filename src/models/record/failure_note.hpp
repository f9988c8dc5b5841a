// The line that says how a job failed, in the timeline of its run too.
#pragma once

#include <cstdint>
#include <filesystem>

#include <sys/types.h>

namespace lockstep {

/// Where a failure of the job is to be noted.
struct FailureNote {
  std::filesystem::path timeline;  ///< absolute
  ino_t inode = 0;                 ///< of the chief's: elsewhere the path may lead to the file of another run
  std::int64_t start = 0;
};

/// LOCAL. From here on, the line by which this process ends its job (print_last_line) also goes to the timeline. If
/// that takes long, as on a file system that hangs, the job ends without. An early end is no failure. The last call
/// counts.
void note_failures(const FailureNote& note);
void forget_failures();

}  // namespace lockstep
