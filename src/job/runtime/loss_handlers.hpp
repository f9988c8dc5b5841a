// What the program does when a rank of the job is lost.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>

#include <lockstep/core/base/error.hpp>

namespace lockstep {

/// The functions of all runtimes of the process. Any thread may call each method.
class LossHandlers {
 public:
  using Handler = std::function<void(const std::string& sentence, Error::ExitCode code)>;

  /// That of a runtime; nothing happens if it is empty.
  void add(const void* runtime, Handler handler) {
    if (!handler) return;
    const std::lock_guard lock{mutex_};
    handlers_.emplace(runtime, std::move(handler));
  }

  /// Waits for the handler, if it is being called.
  void remove(const void* runtime) {
    const std::lock_guard lock{mutex_};
    handlers_.erase(runtime);
  }

  /// Whether this thread is calling them: a handler ends the process, which destroys a runtime that is static.
  bool are_called_here() const { return caller_ == std::this_thread::get_id(); }

  bool empty() {
    const std::lock_guard lock{mutex_};
    return handlers_.empty();
  }

  /// Calls all of them. What one throws is dropped: the job ends in any case.
  void call(const std::string& sentence, Error::ExitCode code) {
    const std::lock_guard lock{mutex_};
    caller_ = std::this_thread::get_id();
    for (const auto& [runtime, handler] : handlers_) {
      try {
        handler(sentence, code);
      } catch (...) {
      }
    }
    caller_ = std::thread::id{};
  }

 private:
  std::mutex mutex_;
  std::map<const void*, Handler> handlers_;
  std::atomic<std::thread::id> caller_;
};

}  // namespace lockstep
