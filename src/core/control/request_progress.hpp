// How requests of a process go on while its program does something else.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include <lockstep/core/base/here.hpp>

namespace lockstep {

/// Moves on all requests of a process. A thread that waits for a request or tests one moves on those of every group, so
/// ranks that wait for different requests do not block each other. Where any thread may call MPI, a thread of its own
/// does so too while nobody waits, from the first request on: without a pause while something moves, then at growing
/// intervals of up to 0.5 ms. After 0.1 s without a request it sleeps, and the submit that wakes it takes longer.
/// Thread-safe: one thread at a time moves requests on, and others do not wait for it.
class RequestProgress {
 public:
  /// Which threads may move requests on.
  enum class Threads : std::uint8_t { any, own };

  /// Requests that go on together.
  class Source {
   public:
    /// LOCAL, never blocks. Moves on what it can. Whether there was something to do. What it throws ends the rank.
    virtual bool advance() = 0;

   protected:
    ~Source() = default;
  };

  /// Counts a source among those that are moved on, for as long as it lives.
  class [[nodiscard]] Added {
   public:
    Added(RequestProgress& progress, Source& source);
    Added(const Added&) = delete;
    ~Added();

   private:
    RequestProgress& progress_;
    Source& source_;
  };

  RequestProgress() = default;
  RequestProgress(const RequestProgress&) = delete;
  RequestProgress& operator=(const RequestProgress&) = delete;
  ~RequestProgress();

  // LOCAL, before the first request.

  /// `own`, if it is not called: only the thread that made this object.
  void set_threads(Threads threads) { threads_ = threads; }

  /// Returns when something may have come. Without it, a thread that has nothing to do lets others run.
  void set_wait_for_news(std::function<void()> wait) { wait_for_news_ = std::move(wait); }

  /// LOCAL, before MPI ends. From here on, nothing moves requests on, and no thread is in MPI for them.
  void stop();

  /// LOCAL. Starts the thread that moves requests on, if there may be one. Error if the system has none left.
  void prepare();

  /// ContextError on a thread that may not move requests on.
  void require_callable(const Here& here) const;

  /// A request begins, or has ended.
  void begin();
  void end() { under_way_.fetch_sub(1, std::memory_order_release); }

  /// Whether what is under way is looked at all the time, whatever the program does.
  bool goes_on_by_itself() const { return threads_ == Threads::any; }

  /// Whether any is under way.
  bool is_busy() const { return under_way_.load(std::memory_order_acquire) > 0; }

  /// LOCAL, never blocks. Whether this call moved something on.
  bool advance();

  /// LOCAL, blocking. Moves all on until `done()`, which must not block. ContextError once `stop` was called.
  template <class Done>
  void wait_until(Done&& done) {
    const Waiting waiting{*this};
    while (!done()) {
      if (is_stopped_) throw_stopped();
      if (!advance()) wait_for_news_();
    }
  }

 private:
  struct Waiting {
    explicit Waiting(RequestProgress& its_progress) : progress{its_progress} { progress.waiting_.fetch_add(1); }
    Waiting(const Waiting&) = delete;
    ~Waiting() { progress.waiting_.fetch_sub(1); }
    RequestProgress& progress;
  };

  bool may_call() const { return threads_ == Threads::any || std::this_thread::get_id() == own_; }
  void go_on();
  [[noreturn]] static void throw_stopped();

  Threads threads_ = Threads::own;
  std::thread::id own_ = std::this_thread::get_id();
  std::atomic<int> under_way_ = 0;
  std::atomic<int> waiting_ = 0;  ///< threads that move requests on
  std::mutex mutex_;
  std::vector<Source*> sources_;  ///< under `mutex_`
  std::function<void()> wait_for_news_ = std::this_thread::yield;

  std::atomic<bool> is_stopped_ = false;
  std::mutex sleep_;
  std::condition_variable woken_;
  bool ends_ = false;    ///< under `sleep_`, as is the next
  bool sleeps_ = false;  ///< the thread, until it is woken
  std::thread thread_;
};

}  // namespace lockstep
