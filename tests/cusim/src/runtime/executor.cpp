// Runs pieces of work: one at a time, of a randomly drawn stream whose first piece has all done that it comes after.
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <optional>
#include <thread>

#include <unistd.h>

#include "memory.hpp"
#include "runtime/guard.hpp"
#include "runtime/order.hpp"
#include "runtime/world.hpp"

namespace cusim {
namespace {

thread_local const Piece* current = nullptr;

enum class Ran { nothing, blocked, done };

/// The pieces that a thread runs.
enum class Kind { any, gpu, host };

/// The streams whose first piece has said in this round that it cannot go on.
using Round = std::vector<cudaStream_t>;

bool is_ready(cudaStream_t stream) {
  return !stream->is_running && are_done(stream->queue.front()->after);
}

void retire(cudaStream_t stream) {
  World& all = world();
  const PiecePointer piece = std::move(stream->queue.front());
  stream->queue.pop_front();
  piece->is_done = true;
  piece->done_ms = now_ms();
  piece->work = nullptr;
  piece->after.clear();
  if (!stream->queue.empty()) return;
  std::erase(all.active, stream);
  if (stream->is_destroyed) give_lane_back(stream);
}

/// Runs the stream's first piece, unlocked.
Ran run(Lock& lock, cudaStream_t stream) {
  World& all = world();
  const PiecePointer piece = stream->queue.front();
  stream->is_running = true;
  if (!piece->is_host) all.is_busy = true;
  bool is_done = true;
  // After a late failure the GPU does nothing any more.
  if (late_failure() == cudaSuccess) {
    lock.unlock();
    if (piece->is_host) close_for_host();
    current = piece.get();
    is_done = piece->work();
    current = nullptr;
    lock.lock();
  }
  stream->is_running = false;
  if (!piece->is_host) all.is_busy = false;
  if (is_done) retire(stream);
  all.changed.notify_all();
  return is_done ? Ran::done : Ran::blocked;
}

/// With half of the seeds, each stream is as likely as the others. With the rest, a stream goes on alone for long, so
/// that others fall far behind.
cudaStream_t draw_from(const std::vector<cudaStream_t>& ready) {
  static const bool are_alike = draw("manner of order", 2) == 0;
  if (are_alike) return ready[draw("order of streams", ready.size())];
  for (cudaStream_t stream : ready)
    if (stream->haste == 0 || draw("changes of haste", 16) == 0) stream->haste = 1 + draw("haste", 1000000);
  return *std::max_element(ready.begin(), ready.end(),
                           [](cudaStream_t a, cudaStream_t b) { return a->haste < b->haste; });
}

Ran run_one(Lock& lock, Round& round, Kind kind = Kind::any) {
  World& all = world();
  std::vector<cudaStream_t> ready;
  for (cudaStream_t stream : all.active) {
    if (!is_ready(stream) || std::find(round.begin(), round.end(), stream) != round.end()) continue;
    const bool is_host = stream->queue.front()->is_host;
    if ((all.is_busy && !is_host) || kind == (is_host ? Kind::gpu : Kind::host)) continue;
    ready.push_back(stream);
  }
  if (ready.empty()) return Ran::nothing;
  cudaStream_t const drawn = draw_from(ready);
  const Ran ran = run(lock, drawn);
  if (ran == Ran::done)
    round.clear();
  else
    round.push_back(drawn);
  return ran;
}

/// Lets others do something for a moment, the longer the more often nothing could go on.
void pause(Lock& lock, int times) {
  if (times >= 4) {
    world().changed.wait_for(lock, std::chrono::microseconds{std::min(20 * (times - 3), 1000)});
    return;
  }
  lock.unlock();
  std::this_thread::yield();
  lock.lock();
}

/// Runs pieces until none can go on or `is_enough`. For the thread in the background.
template <class Enough>
void drain(Lock& lock, const Enough& is_enough) {
  const OpenForLong open;
  Round round;
  while (!is_enough() && run_one(lock, round) != Ran::nothing) continue;
}

void run_late() {
  World& all = world();
  const int patience = settings().patience_ms;
  Lock lock{all.mutex};
  for (;;) {
    all.changed.wait(lock, [&] { return !all.active.empty() && !all.has_ended; });
    const double waited = now_ms() - all.last_call_ms;
    if (waited >= patience) {
      const double call = all.last_call_ms;
      drain(lock, [&] { return all.has_ended || all.last_call_ms != call; });
    }
    lock.unlock();
    std::this_thread::sleep_for(std::chrono::milliseconds{std::max(1, waited >= patience ? 1 : patience / 4)});
    lock.lock();
  }
}

/// A function of the host that waits keeps back its own stream alone, so that another thread runs the GPU's work.
void run_at_random(Kind kind) {
  World& all = world();
  Lock lock{all.mutex};
  Round round;
  for (;;) {
    all.changed.wait(lock, [&] { return !all.active.empty() && !all.has_ended; });
    lock.unlock();
    std::this_thread::sleep_for(std::chrono::microseconds{draw("pauses", 200)});
    lock.lock();
    if (!all.has_ended && run_one(lock, round, kind) == Ran::nothing) round.clear();
  }
}

/// At the process's end, the background must not go on beside the destructors of what its work uses.
void stop_background() {
  World& all = world();
  Lock lock{all.mutex};
  all.has_ended = true;
  all.changed.wait_for(lock, std::chrono::seconds{1}, [&] { return !all.is_busy; });
}

void start_background() {
  if (settings().order == Order::late && settings().patience_ms < 0) return;
  std::atexit(stop_background);
  if (settings().order != Order::thread) {
    std::thread{run_late}.detach();
    return;
  }
  for (const Kind kind : {Kind::gpu, Kind::host}) std::thread{run_at_random, kind}.detach();
}

/// Where a thread of its own runs the work, the host only waits; but not in the process's last destructors.
bool does_host_run() {
  return settings().order != Order::thread || world().has_ended;
}

}  // namespace

double now_ms() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double, std::milli>{now}.count();
}

bool is_in_piece() {
  return current && !current->is_host;
}

bool is_in_host_function() {
  return current && current->is_host;
}

bool are_done(const std::vector<PiecePointer>& pieces) {
  return std::all_of(pieces.begin(), pieces.end(), [](const PiecePointer& piece) { return piece->is_done; });
}

void see_done(const std::vector<PiecePointer>& pieces) {
  World& all = world();
  const Clock before = all.host;
  for (const PiecePointer& piece : pieces) join(all.host, piece->clock);
  if (all.host == before || all.counted_behind == all.enqueued) return;
  all.counted_behind = all.enqueued;
  count("host waits");
}

cudaError_t wait_for(Lock& lock, const std::vector<PiecePointer>& pieces) {
  std::optional<OpenForLong> open;
  Round round;
  int idle = 0;
  while (!are_done(pieces)) {
    if (late_failure() != cudaSuccess) return late_failure();
    const bool helps = does_host_run();
    if (helps && !open) open.emplace();
    if (helps && run_one(lock, round) != Ran::nothing) {
      if (round.empty()) idle = 0;
      continue;
    }
    round.clear();
    open.reset();
    pause(lock, ++idle);
  }
  if (late_failure() != cudaSuccess) return late_failure();
  see_done(pieces);
  return cudaSuccess;
}

void run_some(Lock& lock) {
  if (!does_host_run() || is_in_piece() || is_in_host_function()) return;
  const OpenForLong open;
  Round round;
  std::uint64_t left = settings().order == Order::eager ? ~std::uint64_t{0} : 1 + draw("pieces in a query", 3);
  while (left > 0) {
    const Ran ran = run_one(lock, round);
    if (ran == Ran::nothing) return;
    if (ran == Ran::done) --left;
  }
}

void run_eagerly(Lock& lock) {
  if (settings().order == Order::eager) run_some(lock);
}

void note_call() {
  static pid_t started = 0;
  World& all = world();
  const std::lock_guard lock{all.mutex};
  all.last_call_ms = now_ms();
  if (started == getpid()) return;
  started = getpid();
  start_background();
}

void make_progress() {
  note_call();
  Lock lock{world().mutex};
  run_some(lock);
}

std::uint32_t memory::current_piece() {
  return current ? current->number : 0;
}

const Clock* clock_of_current() {
  return current ? &current->clock : nullptr;
}

}  // namespace cusim
