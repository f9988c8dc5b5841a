#include "apps/lockstep-report/lines.hpp"

#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>

#include "core/base/excerpt.hpp"
#include "core/base/file_io.hpp"

namespace lockstep::report {
namespace {

// Far more than a line of metrics or of a timeline takes.
constexpr std::size_t longest_line = std::size_t{16} << 20;

[[noreturn]] void refuse(const FileError& error) {
  if (!is_about_path(error.code())) throw error;
  throw ConfigError{fmt::format("{}; expected a file that can be read", error.what())};
}

}  // namespace

std::string read_whole(const std::filesystem::path& path, std::size_t limit) {
  const std::string name = excerpt(path.string());
  try {
    return read_text(open_to_read(path, name), limit, name);
  } catch (const FileError& error) {
    refuse(error);
  }
}

void for_each_line(const std::filesystem::path& path, const std::function<void(const Line&)>& use) {
  const std::string name = excerpt(path.string());
  try {
    LineReader lines{open_to_read(path, name), name, longest_line};
    while (const auto line = lines.next())
      if (!line->text.empty())
        with_memory(name, [&] { use({.text = line->text, .number = line->number, .may_be_cut = !line->is_whole}); });
  } catch (const FileError& error) {
    refuse(error);
  }
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
