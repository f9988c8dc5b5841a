#include "core/base/open_line.hpp"

#include <array>
#include <chrono>
#include <cstddef>

#include <unistd.h>

#include "core/base/stream.hpp"

namespace lockstep {
namespace {

using State = std::atomic<std::uint32_t>;

State own_state{0};
std::atomic<State*> state_in_use{&own_state};
std::atomic<void (*)(std::string_view, int)> last_line_listener{nullptr};

// The other ranks wait for the end of the job, and longer than this: see JobEnd.
constexpr StreamPatience patience_with_last_line{.in_all = std::chrono::seconds{5}};

State& state() {
  return *state_in_use.load();
}

constexpr std::uint32_t number(OpenLine value) {
  return static_cast<std::uint32_t>(value);
}

}  // namespace

void share_open_line(std::atomic<std::uint32_t>* shared) {
  State& next = shared ? *shared : own_state;
  const std::uint32_t before = state();
  if (before != number(OpenLine::closed)) next = before;
  state_in_use = &next;
}

bool begin_open_line() {
  std::uint32_t before = number(OpenLine::closed);
  return state().compare_exchange_strong(before, number(OpenLine::open)) || before == number(OpenLine::open);
}

bool end_open_line() {
  std::uint32_t open = number(OpenLine::open);
  return state().compare_exchange_strong(open, number(OpenLine::closed));
}

void print_last_line(std::string_view line, int exit_code) {
  const std::string_view begin = state().exchange(number(OpenLine::over)) == number(OpenLine::open) ? "\n" : "";
  std::array<char, 4096> piece;
  std::size_t size = 0;
  const bool fits = begin.size() + line.size() + 1 <= piece.size();
  for (const std::string_view part : {begin, line, std::string_view{"\n"}}) {
    if (fits)
      size += part.copy(piece.data() + size, part.size());
    else
      (void)write_text(STDERR_FILENO, part, patience_with_last_line);
  }
  (void)write_text(STDERR_FILENO, {piece.data(), size}, patience_with_last_line);
  if (const auto listener = last_line_listener.load()) listener(line, exit_code);
}

bool is_last_line_out() {
  return state() == number(OpenLine::over);
}

void tell_last_line(void (*told)(std::string_view line, int exit_code)) {
  last_line_listener = told;
}

}  // namespace lockstep
