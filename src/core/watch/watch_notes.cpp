#include "core/watch/watch_notes.hpp"

#include <mutex>
#include <utility>

#include <fmt/format.h>

namespace lockstep {
namespace {

struct CurrentNotes {
  std::mutex mutex;
  std::shared_ptr<const WatchNotes> notes;
};

CurrentNotes& current_notes() {
  // Never destroyed: a program may call exit while threads still write.
  static CurrentNotes& current = *new CurrentNotes;
  return current;
}

}  // namespace

void keep_watch_notes(std::shared_ptr<const WatchNotes> notes) {
  CurrentNotes& current = current_notes();
  const std::scoped_lock lock{current.mutex};
  current.notes = std::move(notes);
}

std::shared_ptr<const WatchNotes> watch_notes() {
  CurrentNotes& current = current_notes();
  const std::scoped_lock lock{current.mutex};
  return current.notes;
}

std::filesystem::path stack_file(const std::filesystem::path& stacks, int rank) {
  return stacks / fmt::format("rank-{}.txt", rank);
}

}  // namespace lockstep
