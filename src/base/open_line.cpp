#include "base/open_line.hpp"

#include <unistd.h>

namespace lockstep {
namespace {

using State = std::atomic<std::uint32_t>;

State own_state{0};
std::atomic<State*> state_in_use{&own_state};

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

void print_last_line(std::string line) {
  if (state().exchange(number(OpenLine::over)) == number(OpenLine::open)) line.insert(0, 1, '\n');
  line += '\n';
  (void)!::write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace lockstep
