#include <algorithm>
#include <array>
#include <atomic>

#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>
#include <lockstep/core/base/log.hpp>

#include "core/base/excerpt.hpp"
#include "core/base/log_settings.hpp"
#include "core/base/open_line.hpp"
#include "core/base/stream.hpp"

namespace lockstep::log {
namespace {

std::atomic<Level> lowest_level{Level::info};
std::atomic<int> rank_of_process{-1};
std::atomic<bool> process_is_chief{true};

constexpr std::array<std::string_view, 6> names{"trace", "debug", "info", "warning", "error", "off"};  // of levels
static_assert(names.size() == static_cast<std::size_t>(Level::off) + 1);

void print(Level level, std::string_view line) {
  if (level < lowest_level.load()) return;
  const int rank = rank_of_process;
  // In one piece: other threads, and other ranks, write to the same stream.
  std::string text = end_open_line() ? "\n" : "";
  text += rank < 0 ? "[lockstep]" : fmt::format("[rank {}]", rank);
  write_to_stderr(fmt::format("{} {}: {}\n", text, names[static_cast<std::size_t>(level)], line));
}

}  // namespace

void set_rank(int rank, int chief) {
  rank_of_process = rank;
  process_is_chief = rank < 0 || rank == chief;
}

int rank() {
  return rank_of_process;
}

bool is_chief() {
  return process_is_chief;
}

void set_level(Level level) {
  lowest_level = level;
}

Level parse_level(std::string_view name) {
  const auto found = std::ranges::find(names, name);
  if (found != names.end()) return static_cast<Level>(found - names.begin());
  throw ConfigError{fmt::format("log level '{}': expected trace, debug, info, warning, error or off", excerpt(name))};
}

void debug(std::string_view line) {
  print(Level::debug, line);
}
void info(std::string_view line) {
  print(Level::info, line);
}
void warning(std::string_view line) {
  print(Level::warning, line);
}
void error(std::string_view line) {
  print(Level::error, line);
}

}  // namespace lockstep::log
