#include "apps/lockstep-report/lines.hpp"

#include <cerrno>
#include <cstring>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <lockstep/base/error.hpp>

#include "base/descriptor.hpp"
#include "base/excerpt.hpp"
#include "base/file_type.hpp"

namespace lockstep::report {
namespace {

[[noreturn]] void refuse(const std::filesystem::path& path, std::string_view why) {
  throw ConfigError{fmt::format("{}: {}; expected a file that can be read", excerpt(path.string()), why)};
}

}  // namespace

void for_each_line(const std::filesystem::path& path, const std::function<void(const Line&)>& use) {
  if (const std::string why = why_not_regular(path); !why.empty()) refuse(path, why);
  const Descriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  if (file.get() < 0) refuse(path, std::strerror(errno));
  Line line;
  const auto hand_out = [&](std::string_view text) {
    line.text = text;
    if (!text.empty()) use(line);
    ++line.number;
  };
  // Large enough for almost every line; grows for one that is longer.
  std::vector<char> buffer(std::size_t{1} << 20);
  std::size_t held = 0;
  while (true) {
    if (held == buffer.size()) buffer.resize(2 * buffer.size());
    const ssize_t got = ::read(file.get(), buffer.data() + held, buffer.size() - held);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) refuse(path, std::strerror(errno));
    if (got == 0) break;
    std::string_view rest{buffer.data(), held + static_cast<std::size_t>(got)};
    std::size_t searched = held;  // has no line break
    for (std::size_t end; (end = rest.find('\n', searched)) != rest.npos; searched = 0) {
      hand_out(rest.substr(0, end));
      rest.remove_prefix(end + 1);
    }
    held = rest.size();
    std::memmove(buffer.data(), rest.data(), held);
  }
  line.may_be_cut = true;
  hand_out({buffer.data(), held});
}

void ReadLines::count_unreadable(const Line& line) {
  if (line.may_be_cut && line.text.starts_with('{')) {
    is_cut = true;
    return;
  }
  if (unreadable++ == 0) first_unreadable = line.number;
}

std::string ReadLines::note() const {
  std::string note;
  if (unreadable > 0)
    note = fmt::format("{} {} cannot be read, the first of them line {}", unreadable,
                       unreadable == 1 ? "line" : "lines", first_unreadable);
  if (unknown > 0)
    note += fmt::format("{}{} {} of a kind that this version does not know", note.empty() ? "" : "; ", unknown,
                        unknown == 1 ? "line is" : "lines are");
  if (is_cut) note += fmt::format("{}the last line is not complete", note.empty() ? "" : "; ");
  return note;
}

}  // namespace lockstep::report
