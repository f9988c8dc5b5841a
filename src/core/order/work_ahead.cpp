#include "core/order/work_ahead.hpp"

#include <condition_variable>
#include <exception>
#include <mutex>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <lockstep/core/base/log.hpp>

#include "core/base/awake_clock.hpp"
#include "core/base/floating_point_modes.hpp"
#include "core/base/start_thread.hpp"

namespace lockstep {

/// Shared with the thread, which may live longer than its owner.
struct WorkAhead::State {
  struct Result {
    std::shared_ptr<void> piece;
    std::exception_ptr failure;
  };

  State(Work does, int ahead) : work{std::move(does)}, pieces{static_cast<std::size_t>(ahead)} {
    // The thread has nobody to tell that there is no memory for a result.
    ready.reserve(pieces);
  }

  bool wants_more() const { return !over && !held && ready.size() < pieces; }

  /// Unlocks while it works.
  void make_one(std::unique_lock<std::mutex>& lock) {
    lock.unlock();
    Made made;
    std::exception_ptr failure;
    try {
      // Samples are scaled and augmented here, with the same bits on every rank.
      const StartingFloatingPointModes modes;
      made = work();
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    over = made.last;
    held = failure != nullptr;
    ready.push_back({std::move(made.piece), failure});
    changed.notify_all();
  }

  void run() {
    std::unique_lock lock{mutex};
    for (;;) {
      changed.wait(lock, [&] { return stopping || over || wants_more(); });
      if (stopping || over) break;
      make_one(lock);
    }
    ended = true;
    changed.notify_all();
  }

  Work work;
  std::size_t pieces;
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<Result> ready;  ///< at most `pieces`, the oldest first
  bool over = false;          ///< the last piece is made
  bool held = false;          ///< the last result is an exception that the consumer does not know of, or has just got
  bool stopping = false;
  bool ended = false;  ///< the thread touches nothing but this any more
};

WorkAhead::WorkAhead(Work work, Options options)
    // The consumer's thread draws when the consumer has taken nothing yet: one more.
    : state_{std::make_shared<State>(std::move(work), options.pieces + (options.where == Where::in_turn ? 1 : 0))},
      options_{options} {}

WorkAhead::~WorkAhead() {
  if (!thread_.joinable()) return;
  std::unique_lock lock{state_->mutex};
  state_->stopping = true;
  state_->changed.notify_all();
  constexpr std::chrono::milliseconds between_looks{100};
  const auto start = AwakeClock::now();
  // The thread stands still with this one.
  while (options_.patience && !state_->ended && AwakeClock::now() - start < *options_.patience)
    state_->changed.wait_for(lock, std::min(*options_.patience, between_looks), [&] { return state_->ended; });
  const bool ended = !options_.patience || state_->ended;
  lock.unlock();
  if (ended) {
    thread_.join();
    return;
  }
  log::warning(
      fmt::format("a source has not returned for {} s after the end of its iterator; its thread is left behind",
                  std::chrono::duration<double>(*options_.patience).count()));
  thread_.detach();
}

std::shared_ptr<void> WorkAhead::next() {
  std::unique_lock lock{state_->mutex};
  if (state_->ready.empty()) state_->held = false;
  if (options_.where == Where::in_turn) {
    while (state_->wants_more()) state_->make_one(lock);
  } else {
    if (!thread_.joinable()) thread_ = start_thread("that loads data ahead", [state = state_] { state->run(); });
    state_->changed.notify_all();
    state_->changed.wait(lock, [&] { return !state_->ready.empty(); });
  }
  State::Result result = std::move(state_->ready.front());
  state_->ready.erase(state_->ready.begin());
  state_->changed.notify_all();
  if (result.failure) std::rethrow_exception(result.failure);
  return std::move(result.piece);
}

void WorkAhead::visit_ready(const std::function<void(void* piece)>& visit) {
  const std::lock_guard lock{state_->mutex};
  for (const State::Result& result : state_->ready)
    if (result.piece) visit(result.piece.get());
}

}  // namespace lockstep
