#include "models/record/timeline.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <functional>
#include <optional>
#include <utility>

#include <sys/stat.h>
#include <unistd.h>

#include <lockstep/core/base/error.hpp>

#include "core/base/file_io.hpp"
#include "core/base/own_file.hpp"

namespace lockstep {
namespace {

// Far more than an event takes.
constexpr std::size_t longest_event = std::size_t{4} << 20;
constexpr std::string_view event_begin = R"({"kind":")";

/// Calls `use` for each whole line of a known form, and for the others with nothing. FileError if it cannot be read.
void for_each_event(const std::filesystem::path& path, const std::string& name, std::uint64_t first,
                    const std::function<void(const LineReader::Line&, std::optional<OrderedJson>)>& use) {
  std::optional<Descriptor> file = find_to_read(path, name);
  if (!file) return;
  if (::lseek(file->get(), static_cast<off_t>(first), SEEK_SET) < 0) throw FileError{name, "read", errno};
  LineReader lines{*std::move(file), name, longest_event};
  while (const auto line = lines.next()) try {
      OrderedJson object = with_memory(name, [&] { return parse_foreign_json(line->text); });
      const auto kind = object.is_object() ? object.find("kind") : object.end();
      const bool known = line->is_whole && object.is_object() && kind != object.end() && kind->is_string();
      use(*line, known ? std::optional{std::move(object)} : std::nullopt);
    } catch (const FileError&) {
      throw;
    } catch (const Error&) {  // what a crash of the machine left
      use(*line, std::nullopt);
    }
}

}  // namespace

std::vector<OrderedJson> read_timeline(const std::filesystem::path& path, std::uint64_t first) {
  std::vector<OrderedJson> events;
  for_each_event(path, path.string(), first, [&](const LineReader::Line&, std::optional<OrderedJson> event) {
    if (event) events.push_back(*std::move(event));
  });
  return events;
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

Timeline::Kept Timeline::find(const std::filesystem::path& path, const std::string& name) {
  require_own(path, {event_begin}, name, "another folder, or none of that name");
  Kept kept;
  for_each_event(path, name, 0, [&](const LineReader::Line& line, const std::optional<OrderedJson>& event) {
    kept.is_whole = line.is_whole;
    if (line.is_whole) kept.bytes += line.text.size() + 1;
    if (event && event->at("kind") == "start" && event->contains("start") && event->at("start").is_number_integer())
      kept.start = std::max(kept.start, event->at("start").get<std::int64_t>());
  });
  return kept;
}

Timeline::Timeline(const std::filesystem::path& path, const std::string& name, const Kept& kept)
    : file_{path, name}, start_{kept.start} {
  if (!kept.is_whole) file_.cut(kept.bytes);
}

void Timeline::add(std::string_view kind, const OrderedJson& fields) {
  file_.write_in_one_piece(timeline_line(kind, start_, fields));
}

ino_t Timeline::inode() const {
  struct stat status = {};
  return ::fstat(file_.descriptor().get(), &status) == 0 ? status.st_ino : 0;
}

}  // namespace lockstep
