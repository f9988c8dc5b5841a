#include "core/control/request_progress.hpp"

#include <algorithm>
#include <chrono>

#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>

#include "core/base/site.hpp"
#include "core/base/start_thread.hpp"
#include "core/control/tag.hpp"

namespace lockstep {

RequestProgress::Added::Added(RequestProgress& progress, Source& source) : progress_{progress}, source_{source} {
  const std::scoped_lock lock{progress_.mutex_};
  progress_.sources_.push_back(&source_);
}

RequestProgress::Added::~Added() {
  const std::scoped_lock lock{progress_.mutex_};
  std::erase(progress_.sources_, &source_);
}

RequestProgress::~RequestProgress() {
  stop();
  // That of a thread which ends the process cannot be waited for.
  if (thread_.joinable()) thread_.detach();
}

void RequestProgress::stop() {
  is_stopped_ = true;
  {
    const std::scoped_lock lock{sleep_};
    ends_ = true;
  }
  woken_.notify_all();
  if (thread_.joinable() && thread_.get_id() != std::this_thread::get_id()) thread_.join();
}

void RequestProgress::require_callable(const Here& here) const {
  if (may_call()) return;
  throw ContextError{
      fmt::format("a request{} on another thread than the runtime's, where only that may call MPI: "
                  "expected an MPI with MPI_THREAD_MULTIPLE, and RuntimeOptions::mpi_threads to allow it",
                  bracketed(site_of(here)))};
}

void RequestProgress::begin() {
  under_way_.fetch_add(1, std::memory_order_relaxed);
  if (threads_ == Threads::own) return;
  const std::scoped_lock lock{sleep_};
  if (sleeps_) woken_.notify_all();
}

void RequestProgress::prepare() {
  if (threads_ == Threads::own) return;
  const std::scoped_lock lock{sleep_};
  if (!thread_.joinable() && !ends_)
    thread_ = start_thread("for requests that go on by themselves", [this] { go_on(); });
}

bool RequestProgress::advance() {
  if (!may_call() || is_stopped_) return false;
  const std::unique_lock lock{mutex_, std::try_to_lock};
  if (!lock) return false;
  bool moved = false;
  for (Source* const source : sources_) moved |= source->advance();
  return moved;
}

void RequestProgress::throw_stopped() {
  throw ContextError{"a wait for a request after the end of the job: expected it before the runtime ends"};
}

void RequestProgress::go_on() {
  constexpr std::chrono::microseconds shortest{10}, longest{500};
  constexpr int until_sleep = 200;  // pauses without a request
  std::chrono::microseconds pause = shortest;
  int idle = 0;
  std::unique_lock lock{sleep_};
  while (!ends_) {
    idle = is_busy() ? 0 : idle + 1;
    if (idle > until_sleep) {
      sleeps_ = true;
      woken_.wait(lock, [this] { return ends_ || is_busy(); });
      sleeps_ = false;
      pause = shortest;
      continue;
    }
    lock.unlock();
    const bool looks = idle == 0 && waiting_.load(std::memory_order_relaxed) == 0;
    pause = looks && advance() ? shortest : std::min(pause * 2, longest);
    lock.lock();
    if (pause > shortest) woken_.wait_for(lock, pause, [this] { return ends_; });
  }
}

}  // namespace lockstep
