#include "core/watch/where_table.hpp"

#include <algorithm>
#include <array>
#include <vector>

#include <fmt/chrono.h>
#include <fmt/format.h>

namespace lockstep {
namespace {

std::string kib_text(std::uint32_t kib) {
  const double count = static_cast<double>(kib) / 1024;
  if (kib == 0) return "-";
  return count < 10 * 1024 ? fmt::format("{:.0f} MiB", count) : fmt::format("{:.1f} GiB", count / 1024);
}

std::string place_text(const Whereabout& rank, Whereabout::Seconds heartbeats_come) {
  const Phase phase = rank.seen.phase;
  if (phase == Phase::leaving || phase == Phase::absent) return describe(rank.seen);
  if (rank.ended) return fmt::format("its process has ended; {}", describe(rank.seen));
  if (rank.silent > heartbeats_come)
    return fmt::format("no heartbeat for {:.1f} s; {}", rank.silent.count(), describe(rank.seen));
  return place_of(rank.seen);
}

/// All columns but the name and the place are numbers.
constexpr std::size_t table_columns = 6;
using TableLine = std::array<std::string, table_columns>;

TableLine cells_of(const std::string& name, const Whereabout& rank, Whereabout::Seconds heartbeats_come) {
  const bool is_there = rank.seen.phase != Phase::absent;
  return {name,
          rank.seen.process.there == 0 ? "-" : fmt::format("{}", rank.seen.process.there),
          kib_text(rank.seen.memory.resident),
          kib_text(rank.seen.memory.peak),
          is_there ? fmt::format("{:.1f} s", rank.there.count()) : "-",
          place_text(rank, heartbeats_come)};
}

}  // namespace

std::string utc_text(std::chrono::system_clock::time_point now) {
  return fmt::format("{:%Y-%m-%d %H:%M:%S} UTC", fmt::gmtime(std::chrono::system_clock::to_time_t(now)));
}

std::string where_table(std::span<const std::string> names, std::span<const Whereabout> ranks,
                        Whereabout::Seconds heartbeats_come, std::chrono::system_clock::time_point now) {
  std::vector<TableLine> lines{{"rank", "process", "memory", "peak", "for", "place"}};
  for (std::size_t row = 0; row < ranks.size(); ++row)
    lines.push_back(cells_of(names[row], ranks[row], heartbeats_come));
  std::array<std::size_t, table_columns> widths{};
  for (const TableLine& line : lines)
    for (std::size_t column = 0; column < table_columns; ++column)
      widths[column] = std::max(widths[column], line[column].size());
  std::string text = ranks.size() == 1 ? fmt::format("Where the rank is, {}:\n", utc_text(now))
                                       : fmt::format("Where the {} ranks are, {}:\n", ranks.size(), utc_text(now));
  for (const TableLine& line : lines) {
    text += fmt::format("  {:<{}}", line.front(), widths.front());
    for (std::size_t column = 1; column + 1 < table_columns; ++column)
      text += fmt::format("  {:>{}}", line[column], widths[column]);
    text += fmt::format("  {}\n", line.back());
  }
  return text;
}

}  // namespace lockstep
