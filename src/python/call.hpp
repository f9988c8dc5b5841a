// A call of a collective that is under way.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/ivalue.h>
#include <c10/core/Stream.h>
#include <c10/util/intrusive_ptr.h>

#include <lockstep/core/base/here.hpp>
#include <lockstep/sync/group/group.hpp>

namespace lockstep::python {

class CountedCalls;

/// Something that goes on by itself, and of which a thread can ask if it has ended.
class Task {
 public:
  virtual ~Task() = default;

  /// LOCAL, never blocks, from any thread. Whether it has ended, also by failing.
  virtual bool has_ended() noexcept = 0;

  /// Blocking. Returns when it has ended, or throws what made it fail. Calls `meanwhile` again and again; what that
  /// throws ends the wait alone. The job's watchdog sees that this rank waits, if other ranks must come.
  virtual void wait(const std::function<void()>& meanwhile) = 0;

  /// LOCAL, from any thread. Whether it needs nothing more of a program, but time.
  virtual bool has_met() const { return false; }

  /// LOCAL, from any thread. Whether it has not begun, because a callback of an earlier future has not returned.
  virtual bool is_held() const { return false; }
};

/// Requests of groups, as tasks.
class RequestTask final : public Task {
 public:
  explicit RequestTask(Group::Request request) : request_{std::move(request)} {}

  bool has_ended() noexcept override;
  void wait(const std::function<void()>& meanwhile) override { request_.wait(meanwhile); }

 private:
  Group::Request request_;
};

/// What Python has called: its tasks, and what is done when all have ended. Shared by the Work that Python holds and by
/// Completions, which ends it if nobody waits. Thread-safe.
class Call {
 public:
  /// Who must come to it.
  enum class Of : std::uint8_t {
    all_ranks,        ///< of a group that the job's watchdog follows: it names a rank that is late
    unwatched_ranks,  ///< all of another group: nobody names a late one, so the call itself warns, and ends its waits
    two_ranks,        ///< the same for a message
  };

  struct Parts {
    std::string text;  ///< "all_reduce: SUM of float32[3]"
    Here here;
    std::chrono::milliseconds timeout;  ///< from now on
    Of of = Of::all_ranks;
    int other = -1;                                  ///< the rank of the job that a message is with, if that is known
    std::shared_ptr<const CountedCalls> group = {};  ///< of a call of all its ranks
    std::int64_t number = 0;                         ///< that of the call in the group
    std::int64_t gradients = 0;                      ///< elements of a sum that a backward pass makes
    std::vector<at::Tensor> kept = {};               ///< memory that the tasks use
    /// Runs once, when all tasks have ended well, without Python's lock. What it throws is the failure of the call.
    std::function<void()> finish = {};
    std::vector<at::Tensor> result = {};     ///< what its future gets
    std::optional<c10::Stream> stream = {};  ///< of a device: where the result is ready, once the tasks have ended
    /// The last member: when they are destroyed, they wait until nothing uses the memory any more.
    std::vector<std::shared_ptr<Task>> tasks = {};
  };

  explicit Call(Parts parts);
  Call(const Call&) = delete;
  ~Call();

  /// LOCAL, never blocks. Whether all tasks have ended.
  bool has_ended() noexcept;

  /// LOCAL. After `has_ended`. Finishes the call, unless another thread does or has, and completes its future, whose
  /// callbacks run on this thread and may block.
  void finish();

  /// Whether it has been finished.
  bool is_finished() const { return is_finished_.load(std::memory_order_acquire); }

  /// Null unless it has failed. After it has been finished.
  std::exception_ptr failure() const { return failure_; }
  /// The same, for a program that asks.
  std::exception_ptr tell_failure() {
    is_asked_for_ = true;
    return failure_;
  }
  /// The same for Python (for_torch).
  std::exception_ptr failure_for_torch() const;

  /// Whether it has failed, and the program has not asked for what came of it.
  bool is_unheard() const { return is_finished() && failure_ && !is_asked_for_; }

  /// Blocking, without Python's lock. Returns when it has been finished; throws what made it fail, StallError after
  /// `timeout` or the timeout of the call, and what Python does at a signal. 0 for no timeout of its own. On a device,
  /// the current stream then waits for the result.
  void wait(std::chrono::milliseconds timeout);

  /// Blocking. As a wait that the job's watchdog sees, without an end.
  void show_wait(const std::function<void()>& meanwhile);

  Of of() const { return parts_.of; }
  int other() const { return parts_.other; }
  const std::shared_ptr<const CountedCalls>& group() const { return parts_.group; }
  std::int64_t number() const { return parts_.number; }
  /// "barrier (train.py:24)"
  std::string place() const;
  bool has_met() const;
  bool is_held() const;
  std::chrono::steady_clock::time_point start() const { return start_; }
  const c10::intrusive_ptr<c10::ivalue::Future>& future() {
    is_asked_for_ = true;
    return future_;
  }
  const std::vector<at::Tensor>& result() const { return parts_.result; }

 private:
  void look_at_time(std::chrono::steady_clock::time_point begun, std::chrono::milliseconds timeout);
  void warn_once();
  void ask_other(std::chrono::steady_clock::duration waited);
  std::string_view expected() const;
  [[noreturn]] void throw_late(std::chrono::milliseconds waited) const;

  Parts parts_;  ///< `finish` and `kept` belong to who finishes the call
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  c10::intrusive_ptr<c10::ivalue::Future> future_;
  std::atomic<bool> is_being_finished_ = false;
  /// Whether a warning would come too late. Shared with what another rank is asked.
  std::shared_ptr<std::atomic<bool>> has_warned_ = std::make_shared<std::atomic<bool>>(false);
  std::atomic<std::int64_t> questions_ = 0;
  std::mutex mutex_;
  std::condition_variable finished_;
  std::atomic<bool> is_finished_ = false;
  std::exception_ptr failure_;  ///< set before `is_finished_`
  std::atomic<bool> is_asked_for_ = false;
};

}  // namespace lockstep::python
