// Where the watchdog of this process leaves what it saw: a folder of files that layers above know.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "core/base/parts.hpp"

namespace lockstep {

struct WatchNotes {
  std::filesystem::path table;   ///< the file of the table that says where every rank is; absolute
  std::filesystem::path stacks;  ///< the folder of stacks, one file for each rank that was late; absolute

  /// Writes a file as a whole, or throws. Called from threads that nobody waits for.
  std::function<void(const std::filesystem::path& file, const std::string& text)> write;
};

/// From here on, this process's watchdog leaves its notes there; nowhere if null. From any thread.
LOCKSTEP_PARTS_API void keep_watch_notes(std::shared_ptr<const WatchNotes> notes);

/// The last that was given.
std::shared_ptr<const WatchNotes> watch_notes();

/// The file of a rank's stack.
std::filesystem::path stack_file(const std::filesystem::path& stacks, int rank);

}  // namespace lockstep
