#include "torch/turn_thread.hpp"

#include <utility>

#include <lockstep/core/base/error.hpp>

#include "core/base/floating_point_modes.hpp"
#include "core/base/start_thread.hpp"

namespace lockstep::libtorch {

TurnThread::TurnThread(std::function<void()> work)
    : work_{std::move(work)}, thread_{start_thread("for a computation that takes turns", [this] { run(); })} {}

TurnThread::~TurnThread() {
  give_up();
  thread_.join();
}

void TurnThread::take_turn() {
  hand_over();
  if (const auto failure = std::exchange(failure_, nullptr)) std::rethrow_exception(failure);
}

void TurnThread::give_up() noexcept {
  if (has_ended_) return;
  is_given_up_ = true;
  hand_over();
  failure_ = nullptr;
}

void TurnThread::hand_over() {
  std::unique_lock lock{mutex_};
  if (has_ended_) return;
  is_works_turn_ = true;
  changed_.notify_all();
  changed_.wait(lock, [this] { return !is_works_turn_; });
}

void TurnThread::wait() {
  if (!is_given_up_) {
    std::unique_lock lock{mutex_};
    is_works_turn_ = false;
    changed_.notify_all();
    changed_.wait(lock, [this] { return is_works_turn_; });
  }
  if (is_given_up_) throw ContextError{"given up, because something else has failed"};
}

void TurnThread::run() {
  reset_floating_point_modes();
  {
    std::unique_lock lock{mutex_};
    changed_.wait(lock, [this] { return is_works_turn_; });
  }
  try {
    if (!is_given_up_) work_();
  } catch (...) {
    failure_ = std::current_exception();
  }
  work_ = nullptr;
  const std::lock_guard lock{mutex_};
  has_ended_ = true;
  is_works_turn_ = false;
  changed_.notify_all();
}

}  // namespace lockstep::libtorch
