#include "python/call.hpp"

#include <algorithm>
#include <thread>
#include <utility>

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/jit_type.h>
#include <c10/core/StreamGuard.h>
#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>
#include <lockstep/core/base/log.hpp>

#include "python/failures.hpp"
#include "python/mail.hpp"
#include "python/place.hpp"
#include "python/process.hpp"
#include "python/python_lock.hpp"
#include "python/waits.hpp"

namespace lockstep::python {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

bool RequestTask::has_ended() noexcept {
  try {
    return request_.test();
  } catch (...) {
    return true;
  }
}

Call::Call(Parts parts)
    : parts_{std::move(parts)},
      future_{c10::make_intrusive<c10::ivalue::Future>(
          c10::ListType::create(c10::TensorType::get()),
          parts_.stream ? std::vector{parts_.stream->device()} : std::vector<c10::Device>{})} {}

Call::~Call() {
  // In a child, nothing of this process is under way, and nothing ends.
  if (Process::is_of_parent()) (void)new std::vector<std::shared_ptr<Task>>{std::move(parts_.tasks)};
}

bool Call::has_ended() noexcept {
  return std::ranges::all_of(parts_.tasks, [](const auto& task) { return task->has_ended(); });
}

void Call::finish() {
  if (is_being_finished_.exchange(true)) return;
  const c10::OptionalStreamGuard of_device{parts_.stream};  // for which the future's events wait
  try {
    for (const auto& task : parts_.tasks) task->wait({});  // throws what it failed with; otherwise returns at once
    // The results are new values, not parts of a graph.
    const at::AutoDispatchBelowADInplaceOrView outside_of_autograd;
    if (parts_.finish) parts_.finish();
  } catch (...) {
    failure_ = std::current_exception();
    remember(failure_);
  }
  *has_warned_ = true;
  parts_.finish = nullptr;
  parts_.kept.clear();
  {
    const std::scoped_lock lock{mutex_};
    is_finished_.store(true, std::memory_order_release);
  }
  finished_.notify_all();
  if (failure_)
    future_->setError(failure_for_torch());
  else
    future_->markCompleted(parts_.result);
}

std::exception_ptr Call::failure_for_torch() const {
  return for_torch(failure_, parts_.gradients);
}

void Call::wait(milliseconds timeout) {
  Process::require_own();
  is_asked_for_ = true;
  const ShownWait shown{*this};
  Interrupts interrupts;
  const auto begun = steady_clock::now();
  const auto look = [&] {
    interrupts.look();
    look_at_time(begun, timeout);
  };
  if (!is_being_finished_) {
    for (const auto& task : parts_.tasks) {
      try {
        task->wait(look);
      } catch (const StallError&) {
        throw;
      } catch (const Error&) {
        // The call's own failure, once all of its tasks have ended.
      }
    }
    finish();
  }
  std::unique_lock lock{mutex_};
  while (!finished_.wait_for(lock, milliseconds{50}, [this] { return is_finished_.load(); })) look();
  lock.unlock();
  if (failure_) std::rethrow_exception(failure_);
  if (parts_.stream) future_->wait();
}

void Call::show_wait(const std::function<void()>& meanwhile) {
  for (const auto& task : parts_.tasks)
    if (!task->has_ended()) task->wait(meanwhile);
}

void Call::look_at_time(steady_clock::time_point begun, milliseconds timeout) {
  const auto now = steady_clock::now();
  if (timeout.count() > 0 && now - begun > timeout) throw_late(timeout);
  const Process& process = *Process::current();
  const std::chrono::duration<double> stall{process.stall_seconds()};
  const bool is_watched = parts_.of == Of::all_ranks && !is_held();
  // The watchdog knows who is late, and who works alone.
  const bool watchdog_ends = is_watched && process.ends_stalls() && parts_.timeout >= stall;
  if (!watchdog_ends && now - start_ > parts_.timeout) throw_late(parts_.timeout);
  if (!is_watched && now - start_ > stall) warn_once();
  if (parts_.other >= 0) ask_other(now - begun);
  // A rank that others keep waiting for so long leaves its core to them, and to its own threads.
  if (now - begun > std::chrono::seconds{1}) std::this_thread::sleep_for(std::chrono::microseconds{100});
}

void Call::warn_once() {
  if (!has_warned_->exchange(true))
    log::warning(fmt::format("{} has waited for {:.3g} s; expected {}", place(), Process::current()->stall_seconds(),
                             expected()));
}

std::string Call::place() const {
  return parts_.text + bracketed(parts_.here);
}

bool Call::has_met() const {
  return std::ranges::any_of(parts_.tasks, [](const auto& task) { return task->has_met(); });
}

/// Whether the other rank of a message waits for this one, too: then nobody may ever come. Again each second.
void Call::ask_other(steady_clock::duration waited) {
  constexpr std::chrono::seconds until_asked{3};
  std::int64_t asked = questions_;
  if (waited < until_asked + std::chrono::seconds{asked} || has_met() ||
      !questions_.compare_exchange_strong(asked, asked + 1))
    return;
  // The answer does not keep the call: its end may need Python's lock.
  Process::current()->mail().ask(
      parts_.other, until_asked,
      [place = place(), other = parts_.other, waited, has_warned = has_warned_](const FoundWait& found) {
        const int rank = Process::current()->rank();
        const bool is_told_there = found.other == rank && other < rank;
        if (!found.is_for(rank) || is_told_there || has_warned->exchange(true)) return;
        log::warning(fmt::format("{} has waited for {:.0f} s on replica {}, while replica {} waits at {}", place,
                                 std::chrono::duration<double>(waited).count(), rank, other, found.text));
      });
}

bool Call::is_held() const {
  return std::ranges::any_of(parts_.tasks, [](const auto& task) { return task->is_held(); });
}

std::string_view Call::expected() const {
  if (is_held()) return "the callback of an earlier call's future to return";
  return parts_.of == Of::two_ranks ? "the other rank to call its half" : "all of its ranks to call it";
}

void Call::throw_late(milliseconds waited) const {
  throw StallError{fmt::format("{} has not ended within its timeout of {} s; expected {}", place(),
                               waited.count() / 1000., expected())};
}

}  // namespace lockstep::python
