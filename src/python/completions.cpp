#include "python/completions.hpp"

#include <algorithm>
#include <chrono>
#include <exception>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>
#include <lockstep/core/base/log.hpp>

#include "core/base/start_thread.hpp"

namespace lockstep::python {
namespace {

using std::chrono::microseconds;
using std::chrono::steady_clock;

constexpr microseconds shortest_look{20}, longest_look{500};

// A rank that has waited so long for others shows that it does, even if its program only computes.
constexpr std::chrono::seconds until_shown{1};

/// Ends a wait that is only shown.
struct SomethingElse {};

void warn_of_failure(const Call& call) {
  try {
    std::rethrow_exception(call.failure());
  } catch (const PeerError&) {  // the job ends
  } catch (const std::exception& error) {
    log::warning(fmt::format("{} has failed, and the program does not wait for it: {}", call.place(), error.what()));
  }
}

}  // namespace

void Completions::add(std::shared_ptr<Call> call) {
  const std::scoped_lock lock{mutex_};
  if (is_stopped_) return;  // whoever waits for it finishes it
  under_way_.push_back(std::move(call));
  news_ = steady_clock::now();
  if (!is_watched_)
    let_another_watch();
  else if (pause_ > shortest_look)
    added_.notify_one();
}

/// With the lock.
void Completions::let_another_watch() {
  if (is_stopped_) return;
  if (idle_ > 0) {
    changed_.notify_one();
    return;
  }
  start_thread("for calls that end by themselves", [this] { go_on(); }).detach();
  ++idle_;  // it waits for the lock
}

void Completions::look() {
  const std::scoped_lock lock{mutex_};
  added_.notify_one();
}

void Completions::go_on() {
  std::unique_lock lock{mutex_};
  for (;;) {
    changed_.wait(lock, [this] { return is_stopped_ || (!is_watched_ && has_work()); });
    if (is_stopped_) break;
    --idle_;
    watch(lock);
    ++idle_;
  }
  --idle_;
  changed_.notify_all();
}

void Completions::watch(std::unique_lock<std::mutex>& lock) {
  is_watched_ = true;
  while (!is_stopped_ && !under_way_.empty() && ended_.empty()) {
    if (find_ended(lock) || under_way_.empty()) break;
    if (auto shown = longest_watched_wait()) {
      show_wait(std::move(shown), lock);
      continue;
    }
    const auto quiet = std::chrono::duration_cast<microseconds>(steady_clock::now() - news_);
    pause_ = std::clamp(quiet / 8, shortest_look, longest_look);
    added_.wait_for(lock, pause_);
  }
  is_watched_ = false;
  changed_.notify_all();
  if (ended_.empty()) return;
  // One alone: its callbacks may wait for the others.
  std::shared_ptr<Call> ended = std::move(ended_.front());
  ended_.pop_front();
  if (has_work()) let_another_watch();
  ++finishing_;
  lock.unlock();
  ended->finish();
  note_failure(std::move(ended));
  lock.lock();
  --finishing_;
  changed_.notify_all();
}

/// Never blocks. Asks without the lock: whoever is asked moves data on, and `add` must not wait for that. Drops calls
/// without it too: a callback of a future may need Python's lock to go.
bool Completions::find_ended(std::unique_lock<std::mutex>& lock) {
  std::vector<std::shared_ptr<Call>> calls = under_way_;
  lock.unlock();
  std::erase_if(calls, [](const std::shared_ptr<Call>& call) { return !call->has_ended(); });
  lock.lock();
  for (std::shared_ptr<Call>& call : calls) {
    std::erase(under_way_, call);
    if (!call->is_finished()) ended_.push_back(std::move(call));
  }
  lock.unlock();
  calls.clear();
  lock.lock();
  return !ended_.empty();
}

/// With the lock. The first call that has begun and that the watchdog can judge; null as long as none has waited long.
std::shared_ptr<Call> Completions::longest_watched_wait() const {
  const auto found = std::ranges::find_if(
      under_way_, [](const auto& call) { return call->of() == Call::Of::all_ranks && !call->is_held(); });
  if (found == under_way_.end() || steady_clock::now() - (*found)->start() <= until_shown) return nullptr;
  return *found;
}

void Completions::show_wait(std::shared_ptr<Call> call, std::unique_lock<std::mutex>& lock) {
  lock.unlock();
  try {
    call->show_wait([&] {
      std::this_thread::sleep_for(longest_look);
      std::unique_lock again{mutex_};
      if (is_stopped_ || find_ended(again)) throw SomethingElse{};
    });
  } catch (const SomethingElse&) {
  } catch (const std::exception&) {
    // Its own failure: it has ended.
  }
  call = nullptr;
  lock.lock();
}

/// A program that does not wait for a call goes on with tensors that the call has not changed.
void Completions::note_failure(std::shared_ptr<Call> call) {
  if (!call->is_unheard()) return;
  if (call.use_count() == 1) warn_of_failure(*call);  // otherwise somebody may still ask for it
  std::vector<std::shared_ptr<Call>> before;          // dropped without the lock
  const std::scoped_lock lock{mutex_};
  before.swap(unheard_);
  for (std::shared_ptr<Call>& each : before)
    if (each->is_unheard()) unheard_.push_back(std::move(each));
  unheard_.push_back(std::move(call));
}

std::string Completions::stop() {
  constexpr std::chrono::seconds patience{5};
  std::unique_lock lock{mutex_};
  changed_.wait_for(lock, patience, [this] { return !has_work() && finishing_ == 0; });
  is_stopped_ = true;
  changed_.notify_all();
  changed_.wait_for(lock, patience, [this] { return idle_ == 0 && finishing_ == 0 && !is_watched_; });
  try {
    for (const auto& each : unheard_)
      if (each->is_unheard()) std::rethrow_exception(each->failure());
  } catch (const std::exception& error) {
    return error.what();
  }
  return {};
}

}  // namespace lockstep::python
