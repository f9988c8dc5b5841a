#include <array>
#include <charconv>
#include <csignal>
#include <cstdlib>
#include <stdexcept>
#include <utility>

#include <fmt/format.h>
#include <unistd.h>

#include <lockstep/base/error.hpp>
#include <lockstep/train/fault.hpp>

namespace lockstep {
namespace {

constexpr std::array<std::pair<std::string_view, Fault::Kind>, 5> kinds{{{"throw", Fault::Kind::throws},
                                                                         {"exit", Fault::Kind::exits},
                                                                         {"kill", Fault::Kind::kills},
                                                                         {"stop", Fault::Kind::stops},
                                                                         {"skip-merge", Fault::Kind::skips_merge}}};

/// The number that `text` is, all of it, if it is one and not negative.
template <class Integer>
std::optional<Integer> number(std::string_view text) {
  Integer value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || value < 0) return std::nullopt;
  return value;
}

}  // namespace

std::string_view name_of(Fault::Kind kind) {
  for (const auto& [name, each] : kinds)
    if (each == kind) return name;
  return "?";
}

Fault Fault::parse(std::string_view text, int ranks) {
  const auto malformed = [&](std::string_view what) {
    return ConfigError{fmt::format(
        "LOCKSTEP_FAULT '{}': {}; expected KIND:RANK:STEP with KIND one of throw, exit, kill, stop, skip-merge, RANK "
        "below {} and STEP from 0",
        text, what, ranks)};
  };
  const auto first = text.find(':');
  const auto second = first == text.npos ? first : text.find(':', first + 1);
  if (second == text.npos) throw malformed("it has not three parts");
  const std::string_view kind_text = text.substr(0, first);
  const auto rank = number<int>(text.substr(first + 1, second - first - 1));
  const auto step = number<std::int64_t>(text.substr(second + 1));
  if (!rank || *rank >= ranks) throw malformed("there is no such rank");
  if (!step) throw malformed("there is no such step");
  for (const auto& [name, kind] : kinds)
    if (name == kind_text) return {kind, *rank, *step};
  throw malformed("there is no such kind");
}

std::optional<Fault> Fault::from_environment(int ranks) {
  const char* const text = std::getenv("LOCKSTEP_FAULT");
  if (!text) return std::nullopt;
  return parse(text, ranks);
}

bool Fault::strike(int at_rank, std::int64_t at_step) const {
  if (at_rank != rank || at_step != step) return false;
  switch (kind) {
    case Kind::throws: throw std::runtime_error{fmt::format("LOCKSTEP_FAULT: thrown in step {}", step)};
    case Kind::exits: ::_exit(0);
    case Kind::kills: ::raise(SIGKILL); break;
    case Kind::stops: ::kill(::getpid(), SIGSTOP); break;
    case Kind::skips_merge: return true;
  }
  return false;
}

}  // namespace lockstep
