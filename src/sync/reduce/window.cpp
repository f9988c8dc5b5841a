#include "sync/reduce/window.hpp"

#include <algorithm>

namespace lockstep::detail {
namespace {

constexpr std::int64_t first_bytes = 256 << 10;

/// Both of them may be full of what has come to a late rank before it waits. That says nothing of a rate.
constexpr int directions = 2;

}  // namespace

std::int64_t Window::bytes(Looks looks) const {
  const bool waits = looks == Looks::while_waiting;
  if (rate_ == 0) return waits ? std::min(first_bytes, most_) : most_;
  const Seconds until_next_look = waits ? Seconds{0.020} : Seconds{0.040};
  return std::min(most_, static_cast<std::int64_t>(rate_ * (until_next_look + 2 * latency_).count()));
}

void Window::look(Seconds now, Looks looks, std::int64_t carried, bool is_busy) {
  if (waits_ && looks == Looks::while_waiting) {
    waited_ += now - last_look_;
    carried_ += carried;
    if (carried_ >= 4 * directions * bytes(looks)) take_sample();
  }
  last_look_ = now;
  waits_ = looks == Looks::while_waiting && is_busy;
}

void Window::take_sample() {
  const std::int64_t at_a_rate = carried_ - directions * bytes(Looks::while_waiting);
  if (waited_ > Seconds{0}) rate_ = std::max(0.9 * rate_, static_cast<double>(at_a_rate) / waited_.count());
  waited_ = Seconds{0};
  carried_ = 0;
}

}  // namespace lockstep::detail
