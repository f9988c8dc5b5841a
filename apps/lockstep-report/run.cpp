#include "apps/lockstep-report/run.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <system_error>

#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>

#include "apps/lockstep-report/json_members.hpp"
#include "core/base/excerpt.hpp"
#include "core/base/file_io.hpp"
#include "models/record/run_description.hpp"
#include "models/record/run_folder.hpp"

namespace lockstep::report {
namespace {

constexpr std::int64_t known_format = 1;

/// The values of so many runs share a page, which a browser shall open at once.
std::size_t points_for(std::size_t runs) {
  std::size_t points = 1024;
  while (points > 64 && points * runs > 1024 * 8) points /= 2;
  return points;
}

bool is_there(const std::filesystem::path& path) {
  std::error_code error;
  return std::filesystem::exists(path, error);
}

void read_record(const std::filesystem::path& path, Run& run) {
  try {
    const std::string text = read_whole(path, longest_description);
    run.record = with_memory(path.string(), [&] { return parse_foreign_json(as_utf8(text)); });
  } catch (const FileError&) {
    throw;
  } catch (const ConfigError& error) {
    run.notes.emplace_back(error.what());
    return;
  } catch (const Error& error) {
    run.notes.push_back(fmt::format("run.json cannot be read: it {}", error.what()));
    return;
  }
  if (!run.record.is_object()) {
    run.notes.push_back("run.json cannot be read: it is no JSON object");
    run.record = nullptr;
  } else if (integer_at(run.record, "format") != known_format) {
    run.notes.push_back(
        fmt::format("run.json has the format {}, and this version knows {}: it may say more than is shown",
                    shown_at(run.record, "format"), known_format));
  }
}

void read_lines(const std::filesystem::path& path, Run& run) {
  read_metrics(path, run.metrics);
  const std::string name = path.filename().string(), note = run.metrics.lines.note();
  if (!note.empty()) run.notes.push_back(fmt::format("{}: {}", name, note));
  if (run.metrics.steps == 0) run.notes.push_back(fmt::format("{} has no step yet", name));
}

/// Where a file of the run is: where run.json says, or at `usual` if it says nothing, or the folder has been moved.
std::filesystem::path place_of(const Run& run, const char* what, const std::filesystem::path& usual) {
  const OrderedJson* const paths = member(run.record, "paths");
  const std::string told = paths ? text_at(*paths, what) : "";
  return !told.empty() && (is_there(run.path / told) || !is_there(usual)) ? run.path / told : usual;
}

/// For notes: as it is seen from the folder of the run.
std::string name_in(const Run& run, const std::filesystem::path& path) {
  const auto relative = path.lexically_relative(run.path);
  return (relative.empty() ? path : relative).string();
}

void read_timeline_of(Run& run, const std::filesystem::path& path) {
  if (!is_there(path)) {
    run.notes.push_back(name_in(run, path) + " is missing");
    return;
  }
  try {
    run.timeline = read_timeline(path);
  } catch (const ConfigError& error) {
    run.notes.emplace_back(error.what());
    return;
  }
  if (const std::string note = run.timeline->lines.note(); !note.empty())
    run.notes.push_back(fmt::format("{}: {}", path.filename().string(), note));
}

void read_folder(Run& run) {
  const RunLayout layout{run.path};
  const bool has_record = is_there(layout.description());
  if (has_record)
    read_record(layout.description(), run);
  else
    run.notes.push_back("run.json is missing");
  const auto metrics = place_of(run, "metrics", layout.metrics()),
             timeline = place_of(run, "timeline", layout.timeline());
  if (!has_record && !is_there(metrics) && !is_there(timeline))
    throw ConfigError{fmt::format(
        "{}: has no run.json, metrics.jsonl or timeline.jsonl; expected the folder of a run, or a file of metrics",
        excerpt(run.path.string()))};
  if (is_there(metrics))
    read_lines(metrics, run);
  else
    run.notes.push_back(name_in(run, metrics) + " is missing");
  read_timeline_of(run, timeline);
}

void read_file(Run& run) {
  read_lines(run.path, run);
  const ReadLines& lines = run.metrics.lines;
  if (lines.used == 0 && lines.unreadable + lines.unknown > 0)
    throw ConfigError{fmt::format("{}: has no line of metrics; expected the folder of a run, or a file of metrics",
                                  excerpt(run.path.string()))};
}

constexpr auto every_part = std::numeric_limits<std::size_t>::max();

/// The last `parts` parts of a path, without empty ones.
std::string tail_of(const std::filesystem::path& path, std::size_t parts) {
  std::vector<std::string> all;
  for (const auto& part : path.lexically_normal())
    if (!part.empty() && part != "/") all.push_back(part.string());
  std::string tail;
  for (std::size_t i = all.size() - std::min(parts, all.size()); i < all.size(); ++i)
    tail += (tail.empty() ? "" : "/") + all[i];
  return tail.empty() ? path.string() : tail;
}

}  // namespace

const Event* Run::last(const char* kind) const {
  if (!timeline) return nullptr;
  const auto found = std::find_if(timeline->events.rbegin(), timeline->events.rend(),
                                  [&](const Event& event) { return event.kind == kind; });
  return found == timeline->events.rend() ? nullptr : &*found;
}

std::string Run::state() const {
  const Event *const start = last("start"), *const end = last("end"), *const failure = last("failure"),
                     *const stop = last("stop");
  const auto is_last = [&](const Event* event) { return event && (!start || event->start >= start->start); };
  if (is_last(failure)) return "failed";
  if (is_last(stop)) return "stopped early";
  if (is_last(end)) return "ended";
  const OrderedJson* const ended = member(record, "ended");
  if (ended && ended->is_string()) return "ended";
  return ended || timeline ? "not ended" : "";
}

std::vector<std::string> names_of(const std::vector<std::filesystem::path>& paths) {
  std::map<std::string, std::string> names;  // by the whole path
  const auto whole = [](const std::filesystem::path& path) {
    return tail_of(std::filesystem::absolute(path), every_part);
  };
  for (std::size_t parts = 1;; ++parts) {
    names.clear();
    std::set<std::string> tails;
    for (const auto& path : paths) {
      const std::string tail = tail_of(std::filesystem::absolute(path), parts);
      if (names.emplace(whole(path), tail).second) tails.insert(tail);
    }
    if (tails.size() == names.size()) break;
  }
  std::map<std::string, int> counts;
  std::vector<std::string> all;
  for (const auto& path : paths) {
    const std::string& name = names.at(whole(path));
    const int count = ++counts[name];
    all.push_back(count == 1 ? name : fmt::format("{} ({})", name, count));
  }
  return all;
}

std::vector<Run> read_runs(const std::vector<std::filesystem::path>& paths) {
  const std::vector<std::string> names = names_of(paths);
  std::vector<Run> runs;
  for (std::size_t i = 0; i < paths.size(); ++i) {
    Run& run = runs.emplace_back(points_for(paths.size()));
    run.name = names[i];
    run.path = paths[i];
    std::error_code error;
    const auto status = std::filesystem::status(paths[i], error);
    if (!std::filesystem::exists(status))
      throw ConfigError{fmt::format("{}: {}; expected the folder of a run, or a file of metrics",
                                    excerpt(paths[i].string()), error.message())};
    if (std::filesystem::is_directory(status))
      read_folder(run);
    else
      read_file(run);
  }
  return runs;
}

}  // namespace lockstep::report
