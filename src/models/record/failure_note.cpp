#include "models/record/failure_note.hpp"

#include <algorithm>
#include <array>
#include <climits>
#include <exception>
#include <mutex>
#include <span>
#include <string>
#include <string_view>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <lockstep/core/base/error.hpp>

#include "core/base/descriptor.hpp"
#include "core/base/file_io.hpp"
#include "core/base/open_line.hpp"
#include "core/base/side_thread.hpp"
#include "models/record/timeline.hpp"

namespace lockstep {
namespace {

/// Where this process notes its failure. Whoever has set it may be gone when the line is written.
struct CurrentNote {
  std::mutex mutex;
  std::array<char, PATH_MAX> timeline = {};  ///< empty: nowhere
  ino_t inode = 0;
  std::int64_t start = 0;
};

CurrentNote& current_note() {
  static CurrentNote current;
  return current;
}

/// A file that another rank may be writing to, too.
void add_to(const FailureNote& note, std::string line) {
  const std::string name = note.timeline;
  const Descriptor file{
      uninterrupted([&] { return ::open(name.c_str(), O_RDWR | O_APPEND | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW); })};
  struct stat status = {};
  if (file.get() < 0 || ::fstat(file.get(), &status) != 0 || status.st_ino != note.inode) return;
  // The chief may have been killed in the middle of a line. A line break too many does no harm.
  char last = '\n';
  try {
    if (status.st_size > 0)
      (void)read_at(file, static_cast<std::uint64_t>(status.st_size) - 1, std::as_writable_bytes(std::span{&last, 1}),
                    name);
  } catch (const FileError&) {
    last = ' ';
  }
  if (last != '\n') line.insert(0, 1, '\n');
  try {
    write_all(file, line, name);
  } catch (const FileError&) {  // stderr has the line
  }
}

void on_last_line(std::string_view line, int exit_code) {
  if (exit_code == static_cast<int>(Error::ExitCode::stopped)) return;
  try {
    FailureNote note;
    {
      const std::scoped_lock lock{current_note().mutex};
      note = {current_note().timeline.data(), current_note().inode, current_note().start};
    }
    if (note.timeline.empty()) return;
    SideThread side;
    side.start(
        [=, text = timeline_line("failure", note.start, failure_fields(line, exit_code))] { add_to(note, text); });
  } catch (const std::exception&) {  // no memory for it
  }
}

}  // namespace

void note_failures(const FailureNote& note) {
  const std::string& path = note.timeline.native();
  CurrentNote& current = current_note();
  const std::scoped_lock lock{current.mutex};
  if (path.size() >= current.timeline.size()) return;
  current.timeline = {};
  std::ranges::copy(path, current.timeline.begin());
  current.inode = note.inode;
  current.start = note.start;
  tell_last_line(on_last_line);
}

void forget_failures() {
  const std::scoped_lock lock{current_note().mutex};
  current_note().timeline = {};
}

}  // namespace lockstep
