// What the program does when a rank of the job is lost.
#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <string>

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

  bool empty() {
    const std::lock_guard lock{mutex_};
    return handlers_.empty();
  }

  /// Calls all of them. What one throws is dropped: the job ends in any case.
  void call(const std::string& sentence, Error::ExitCode code) {
    const std::lock_guard lock{mutex_};
    for (const auto& [runtime, handler] : handlers_) {
      try {
        handler(sentence, code);
      } catch (...) {
      }
    }
  }

 private:
  std::mutex mutex_;
  std::map<const void*, Handler> handlers_;
};

}  // namespace lockstep
