// Python's global lock, on threads that Python may not know.
#pragma once

#include <chrono>

namespace lockstep::python {

/// Holds Python's lock while it lives, whatever the thread held before.
class PythonLock {
 public:
  PythonLock();
  PythonLock(const PythonLock&) = delete;
  ~PythonLock();

  /// False once Python ends: nobody may call it then.
  bool is_held() const { return is_held_; }

 private:
  bool is_held_;
  int state_ = 0;
};

/// Lets Python act on signals, such as Ctrl-C, while this thread waits outside of it.
class Interrupts {
 public:
  /// With Python's lock, when the module is loaded. Finds Python's main thread, the only one that acts on signals.
  static void find_main_thread();

  /// LOCAL, without Python's lock. Now and then runs what Python does at the signals that have come, if this is its
  /// main thread; throws what comes of it, such as KeyboardInterrupt. On other threads it does nothing.
  void look();

 private:
  static constexpr std::chrono::milliseconds between{50};
  std::chrono::steady_clock::time_point next_ = std::chrono::steady_clock::now() + between;
};

}  // namespace lockstep::python
