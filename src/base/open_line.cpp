#include "base/open_line.hpp"

#include <unistd.h>

namespace lockstep {
namespace {

using State = std::atomic<std::uint32_t>;

State own_state{0};
std::atomic<State*> state_in_use{&own_state};
std::atomic<void (*)(std::string_view, int)> last_line_listener{nullptr};

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

void print_last_line(std::string line, int exit_code) {
  const bool is_open = state().exchange(number(OpenLine::over)) == number(OpenLine::open);
  line.insert(0, is_open ? 1 : 0, '\n');
  line += '\n';
  (void)!::write(STDERR_FILENO, line.data(), line.size());
  std::string_view told{line};
  told.remove_prefix(is_open ? 1 : 0);
  told.remove_suffix(1);
  if (const auto listener = last_line_listener.load()) listener(told, exit_code);
}

void tell_last_line(void (*told)(std::string_view line, int exit_code)) {
  last_line_listener = told;
}

}  // namespace lockstep
