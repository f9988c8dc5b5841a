// Work that may never end, beside a thread that must go on.
#pragma once

#include <atomic>
#include <functional>
#include <memory>

#include "core/base/parts.hpp"

namespace lockstep {

/// A thread that does what may take for ever, such as writing to a file system that hangs. One thing at a time.
class LOCKSTEP_PARTS_API SideThread {
 public:
  SideThread() = default;
  SideThread(const SideThread&) = delete;
  /// Waits half a second for what is under way, and then leaves it alone.
  ~SideThread();

  bool is_busy() const { return !*done_; }

  /// False, and nothing happens, if it is busy or the system has no thread or memory for it. `work` owns what it uses.
  /// Nobody learns of an exception that it throws.
  bool start(std::function<void()> work);

 private:
  std::shared_ptr<std::atomic<bool>> done_ = std::make_shared<std::atomic<bool>>(true);
};

}  // namespace lockstep
