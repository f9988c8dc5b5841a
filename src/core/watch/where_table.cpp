#include "core/watch/where_table.hpp"

#include <algorithm>
#include <array>
#include <vector>

#include <fmt/chrono.h>
#include <fmt/format.h>

namespace lockstep {
namespace {

/// Whether a rank has not gone on from one look to the next.
bool is_same_place(const PhaseTable::Snapshot& a, const PhaseTable::Snapshot& b) {
  return a.phase == b.phase && a.meeting == b.meeting && a.meetings == b.meetings && a.last.kind == b.last.kind &&
         a.last.count == b.last.count && a.position.where == b.position.where && a.position.kind == b.position.kind &&
         a.position.step == b.position.step && a.position.since == b.position.since;
}

std::string bytes_text(std::uint64_t bytes) {
  constexpr double mebibyte = 1 << 20;
  const double count = static_cast<double>(bytes) / mebibyte;
  if (bytes == 0) return "-";
  return count < 10 * 1024 ? fmt::format("{:.0f} MiB", count) : fmt::format("{:.1f} GiB", count / 1024);
}

std::string place_text(const Stay& stay, Stay::Seconds heartbeats_come) {
  const Phase phase = stay.seen.phase;
  if (phase == Phase::leaving || phase == Phase::absent) return describe(stay.seen);
  if (stay.ended) return fmt::format("its process has ended; {}", describe(stay.seen));
  if (stay.silent > heartbeats_come)
    return fmt::format("no heartbeat for {:.1f} s; {}", stay.silent.count(), describe(stay.seen));
  return place_of(stay.seen);
}

/// All columns but the name and the place are numbers.
constexpr std::size_t table_columns = 6;
using TableLine = std::array<std::string, table_columns>;

TableLine cells_of(const std::string& name, const Stay& stay, Stay::Seconds heartbeats_come) {
  const bool is_there = stay.seen.phase != Phase::absent;
  return {name,
          stay.seen.number == 0 ? "-" : fmt::format("{}", stay.seen.number),
          bytes_text(stay.seen.memory.resident),
          bytes_text(stay.seen.memory.peak),
          is_there ? fmt::format("{:.1f} s", stay.there.count()) : "-",
          place_text(stay, heartbeats_come)};
}

}  // namespace

void Stay::look(const PhaseTable::Snapshot& now, Seconds took) {
  there = is_same_place(now, seen) ? there + took : Seconds{0};
  silent = now.heartbeat == seen.heartbeat ? silent + took : Seconds{0};
  seen = now;
}

std::string utc_text(std::chrono::system_clock::time_point now) {
  return fmt::format("{:%Y-%m-%d %H:%M:%S} UTC", fmt::gmtime(std::chrono::system_clock::to_time_t(now)));
}

std::string where_table(std::span<const std::string> names, std::span<const Stay> stays, Stay::Seconds heartbeats_come,
                        std::chrono::system_clock::time_point now) {
  std::vector<TableLine> lines{{"rank", "process", "memory", "peak", "for", "place"}};
  for (std::size_t row = 0; row < stays.size(); ++row)
    lines.push_back(cells_of(names[row], stays[row], heartbeats_come));
  std::array<std::size_t, table_columns> widths{};
  for (const TableLine& line : lines)
    for (std::size_t column = 0; column < table_columns; ++column)
      widths[column] = std::max(widths[column], line[column].size());
  std::string text = stays.size() == 1 ? fmt::format("Where the rank is, {}:\n", utc_text(now))
                                       : fmt::format("Where the {} ranks are, {}:\n", stays.size(), utc_text(now));
  for (const TableLine& line : lines) {
    text += fmt::format("  {:<{}}", line.front(), widths.front());
    for (std::size_t column = 1; column + 1 < table_columns; ++column)
      text += fmt::format("  {:>{}}", line[column], widths[column]);
    text += fmt::format("  {}\n", line.back());
  }
  return text;
}

}  // namespace lockstep
