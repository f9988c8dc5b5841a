#include "record/timeline.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fstream>
#include <iterator>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <lockstep/base/error.hpp>

#include "base/file_type.hpp"
#include "checkpoint/shared_files.hpp"

namespace lockstep {
namespace {

/// How many bytes of `text` are whole lines.
std::size_t whole_lines(std::string_view text) {
  return text.rfind('\n') + 1;  // npos + 1 is 0
}

std::string text_from(const std::filesystem::path& path, std::uint64_t first) {
  std::ifstream file{path, std::ios::binary};
  file.seekg(static_cast<std::streamoff>(first));
  return file ? std::string{std::istreambuf_iterator<char>{file}, {}} : std::string{};
}

std::vector<OrderedJson> objects_in(std::string_view text) {
  std::vector<OrderedJson> objects;
  for (std::size_t end; (end = text.find('\n')) != text.npos; text.remove_prefix(end + 1)) try {
      OrderedJson object = parse_foreign_json(text.substr(0, end));
      const auto kind = object.is_object() ? object.find("kind") : object.end();
      if (object.is_object() && kind != object.end() && kind->is_string()) objects.push_back(std::move(object));
    } catch (const Error&) {  // what a crash of the machine left
    }
  return objects;
}

}  // namespace

std::vector<OrderedJson> read_timeline(const std::filesystem::path& path, std::uint64_t first) {
  if (!why_not_regular(path).empty()) return {};
  return objects_in(text_from(path, first));
}

std::string timeline_line(std::string_view kind, std::int64_t start, const OrderedJson& fields) {
  const std::chrono::duration<double> now = std::chrono::system_clock::now().time_since_epoch();
  OrderedJson line{{"kind", kind}, {"time", now.count()}, {"start", start}};
  line.update(fields);
  return line.dump(-1, ' ', false, OrderedJson::error_handler_t::replace) + '\n';
}

OrderedJson failure_fields(std::string_view line, int exit_code) {
  return {{"line", line}, {"exit_code", exit_code}};
}

Timeline::Timeline(const std::filesystem::path& path, std::string name) : name_{std::move(name)} {
  file_ = open_shared(path, O_RDWR | O_APPEND);
  const std::string wrong = why_not_regular(path);
  if (file_.get() < 0 || !wrong.empty())
    throw CheckpointError{fmt::format("{}: {}", name_, wrong.empty() ? std::strerror(errno) : wrong)};
  const std::string text = text_from(path, 0);
  if (const std::size_t whole = whole_lines(text); whole < text.size())
    if (::ftruncate(file_.get(), static_cast<off_t>(whole)) != 0)
      throw CheckpointError{fmt::format("{}: cannot be written: {}", name_, std::strerror(errno))};
  for (const OrderedJson& line : objects_in(text))
    if (line["kind"] == "start" && line.contains("start") && line["start"].is_number_integer())
      start_ = std::max(start_, line["start"].get<std::int64_t>());
}

void Timeline::add(std::string_view kind, const OrderedJson& fields) {
  const std::string line = timeline_line(kind, start_, fields);
  struct stat before = {};
  const bool known = ::fstat(file_.get(), &before) == 0;
  const ssize_t written = ::write(file_.get(), line.data(), line.size());
  if (written == std::ssize(line)) return;
  const int error = written < 0 ? errno : ENOSPC;
  if (known) (void)!::ftruncate(file_.get(), before.st_size);
  throw CheckpointError{fmt::format("{}: cannot be written: {}", name_, std::strerror(error))};
}

ino_t Timeline::inode() const {
  struct stat status = {};
  return ::fstat(file_.get(), &status) == 0 ? status.st_ino : 0;
}

}  // namespace lockstep
