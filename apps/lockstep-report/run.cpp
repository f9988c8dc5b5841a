#include "apps/lockstep-report/run.hpp"

#include <algorithm>
#include <map>
#include <sstream>
#include <system_error>

#include <fmt/format.h>

#include <lockstep/base/error.hpp>

#include "apps/lockstep-report/json_members.hpp"
#include "base/excerpt.hpp"

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
  std::string text;
  for_each_line(path, [&](const Line& line) { text.append(line.text) += '\n'; });
  try {
    run.record = parse_foreign_json(as_utf8(text));
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

/// Where a file of the run is: `usual` in its folder, unless run.json says otherwise.
std::filesystem::path place_of(const Run& run, const char* what, const char* usual) {
  const OrderedJson* const paths = member(run.record, "paths");
  const std::string told = paths ? text_at(*paths, what) : "";
  return !told.empty() && is_there(run.path / told) ? run.path / told : run.path / usual;
}

void read_folder(Run& run) {
  const bool has_record = is_there(run.path / "run.json");
  if (has_record)
    read_record(run.path / "run.json", run);
  else
    run.notes.push_back("run.json is missing");
  const auto metrics = place_of(run, "metrics", "metrics.jsonl"),
             timeline = place_of(run, "timeline", "timeline.jsonl");
  if (!has_record && !is_there(metrics) && !is_there(timeline))
    throw ConfigError{fmt::format(
        "{}: has no run.json, metrics.jsonl or timeline.jsonl; expected the folder of a run, or a file of metrics",
        excerpt(run.path.string()))};
  if (is_there(metrics))
    read_lines(metrics, run);
  else
    run.notes.push_back("metrics.jsonl is missing");
  if (!is_there(timeline)) {
    run.notes.push_back("timeline.jsonl is missing");
    return;
  }
  run.timeline = read_timeline(timeline);
  if (const std::string note = run.timeline->lines.note(); !note.empty())
    run.notes.push_back("timeline.jsonl: " + note);
}

void read_file(Run& run) {
  read_lines(run.path, run);
  const ReadLines& lines = run.metrics.lines;
  if (lines.used == 0 && lines.unreadable + lines.unknown > 0)
    throw ConfigError{fmt::format("{}: has no line of metrics; expected the folder of a run, or a file of metrics",
                                  excerpt(run.path.string()))};
}

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
  std::vector<std::string> names;
  for (std::size_t parts = 1; parts <= 16; ++parts) {
    names.clear();
    for (const auto& path : paths) names.push_back(tail_of(std::filesystem::absolute(path), parts));
    std::vector<std::string> sorted = names;
    std::sort(sorted.begin(), sorted.end());
    if (std::adjacent_find(sorted.begin(), sorted.end()) == sorted.end()) return names;
  }
  // The same path twice.
  std::map<std::string, int> counts;
  for (std::size_t i = 0; i < paths.size(); ++i) {
    names[i] = tail_of(std::filesystem::absolute(paths[i]), 1);
    if (const int count = ++counts[names[i]]; count > 1) names[i] += fmt::format(" ({})", count);
  }
  return names;
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
