#include "apps/lockstep-report/timeline.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <string_view>

#include <lockstep/core/base/error.hpp>

#include "apps/lockstep-report/json_members.hpp"

namespace lockstep::report {
namespace {

// Seconds since 1970. A browser has no date for what is far beyond.
constexpr double latest_time = 1e11;

constexpr std::array<std::string_view, 6> kinds = {"start", "checkpoint", "evaluation", "stop", "failure", "end"};

Event event_in(const OrderedJson& line) {
  Event event{.kind = text_at(line, "kind"),
              .time = seconds_at(line, "time"),
              .start = std::max(std::int64_t{1}, integer_at(line, "start").value_or(1)),
              .step = integer_at(line, "step").value_or(-1),
              .seconds = seconds_at(line, "seconds"),
              .text = shown_at(line, line.contains("line") ? "line" : "path"),
              .exit_code = integer_at(line, "exit_code").value_or(0)};
  const OrderedJson* const ranks = member(line, "ranks");
  if (ranks && ranks->is_array()) event.ranks = static_cast<std::int64_t>(ranks->size());
  if (ranks && ranks->is_number_integer()) event.ranks = ranks->get<std::int64_t>();
  return event;
}

}  // namespace

Timeline read_timeline(const std::filesystem::path& path) {
  Timeline timeline;
  for_each_line(path, [&](const Line& line) {
    try {
      const OrderedJson object = parse_foreign_json(as_utf8(line.text));
      Event event = event_in(object);
      if (event.kind.empty() || event.time == 0 || event.time > latest_time)
        return timeline.lines.count_unreadable(line);
      if (std::find(kinds.begin(), kinds.end(), event.kind) == kinds.end()) {
        ++timeline.lines.unknown;
        return;
      }
      ++timeline.lines.used;
      if (event.kind == "start") ++timeline.starts;
      timeline.events.push_back(std::move(event));
    } catch (const Error&) {
      timeline.lines.count_unreadable(line);
    }
  });
  // Several processes write it, whose clocks may differ.
  std::stable_sort(timeline.events.begin(), timeline.events.end(),
                   [](const Event& one, const Event& other) { return one.time < other.time; });
  return timeline;
}

std::vector<Event> thinned(const std::vector<Event>& events, std::size_t most) {
  std::map<std::string, std::size_t> counts, seen;
  for (const Event& event : events) ++counts[event.kind];
  std::vector<Event> kept;
  for (const Event& event : events) {
    const std::size_t every = (counts[event.kind] + most - 1) / most;
    if (seen[event.kind]++ % every == 0) kept.push_back(event);
  }
  return kept;
}

}  // namespace lockstep::report
