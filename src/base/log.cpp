#include <atomic>

#include <fmt/format.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <lockstep/base/error.hpp>
#include <lockstep/base/log.hpp>

#include "base/excerpt.hpp"
#include "base/log_settings.hpp"
#include "base/open_line.hpp"

namespace lockstep::log {
namespace {

constexpr const char* pattern_without_rank = "[lockstep] %l: %v";

// The process's only log. spdlog's own registry would share its default logger with the user's program.
spdlog::logger& logger() {
  static spdlog::logger instance = [] {
    spdlog::logger made{"lockstep", std::make_shared<spdlog::sinks::stderr_sink_mt>()};
    made.set_pattern(pattern_without_rank);
    made.flush_on(spdlog::level::trace);
    return made;
  }();
  return instance;
}

std::atomic<int> rank_of_process{-1};
std::atomic<bool> process_is_chief{true};

spdlog::level::level_enum to_spdlog(Level level) {
  switch (level) {
    case Level::trace: return spdlog::level::trace;
    case Level::debug: return spdlog::level::debug;
    case Level::info: return spdlog::level::info;
    case Level::warning: return spdlog::level::warn;
    case Level::error: return spdlog::level::err;
    case Level::off: return spdlog::level::off;
  }
  return spdlog::level::info;
}

void print(Level level, std::string_view line) {
  if (!logger().should_log(to_spdlog(level))) return;
  if (end_open_line()) (void)!::write(STDERR_FILENO, "\n", 1);
  logger().log(to_spdlog(level), line);
}

}  // namespace

void set_rank(int rank, int chief) {
  rank_of_process = rank;
  process_is_chief = rank < 0 || rank == chief;
  logger().set_pattern(rank < 0 ? pattern_without_rank : fmt::format("[rank {}] %l: %v", rank));
}

int rank() {
  return rank_of_process;
}

bool is_chief() {
  return process_is_chief;
}

void set_level(Level level) {
  logger().set_level(to_spdlog(level));
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
