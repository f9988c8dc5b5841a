#include <atomic>

#include <fmt/format.h>

#include <lockstep/base/error.hpp>
#include <lockstep/base/log.hpp>

#include "base/excerpt.hpp"
#include "base/log_settings.hpp"
#include "base/open_line.hpp"
#include "base/stream.hpp"

namespace lockstep::log {
namespace {

std::atomic<Level> lowest_level{Level::info};
std::atomic<int> rank_of_process{-1};
std::atomic<bool> process_is_chief{true};

std::string_view name_of(Level level) {
  switch (level) {
    case Level::trace: return "trace";
    case Level::debug: return "debug";
    case Level::info: return "info";
    case Level::warning: return "warning";
    case Level::error: return "error";
    case Level::off: return "off";
  }
  return {};
}

void print(Level level, std::string_view line) {
  if (level < lowest_level.load()) return;
  const int rank = rank_of_process;
  // In one piece: other threads, and other ranks, write to the same stream.
  std::string text = end_open_line() ? "\n" : "";
  text += rank < 0 ? "[lockstep]" : fmt::format("[rank {}]", rank);
  write_to_stderr(fmt::format("{} {}: {}\n", text, name_of(level), line));
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
  if (name == "trace") return Level::trace;
  if (name == "debug") return Level::debug;
  if (name == "info") return Level::info;
  if (name == "warning") return Level::warning;
  if (name == "error") return Level::error;
  if (name == "off") return Level::off;
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
