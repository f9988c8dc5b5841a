// A thread that takes turns with the one that owns it.
#pragma once

#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

namespace lockstep::libtorch {

/// A computation that can wait in its middle while its owner goes on, as a coroutine's can. It has a stack of its own,
/// so any code can lie between. One of the two threads runs at any time, and each sees what the other has written.
class TurnThread {
 public:
  /// `work` begins in the first turn.
  explicit TurnThread(std::function<void()> work);
  TurnThread(const TurnThread&) = delete;
  TurnThread& operator=(const TurnThread&) = delete;

  /// As give_up.
  ~TurnThread();

  /// For the owner. Returns when the work waits or has ended. Rethrows what the work has thrown.
  void take_turn();

  /// For the owner. Ends a work that waits: there, `wait` throws ContextError. Whatever the work throws is forgotten.
  void give_up() noexcept;

  /// For the work. Returns in the next turn.
  void wait();

 private:
  void run();
  void hand_over();

  std::function<void()> work_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_works_turn_ = false;
  bool is_given_up_ = false;
  bool has_ended_ = false;
  std::exception_ptr failure_;
  std::thread thread_;  ///< the last, as it uses the others
};

}  // namespace lockstep::libtorch
