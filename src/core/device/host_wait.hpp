// The only place where the host waits for a GPU. It polls: a thread inside the driver could neither be told to give up
// nor say what it waits for, and the driver has no limit of its own.
#pragma once

#include <functional>

#include "core/base/parts.hpp"

namespace lockstep::detail {

/// Blocks the host until `done` returns true, in the way of the process; if it has none, without a limit. Rethrows what
/// `done` throws.
LOCKSTEP_PARTS_API void wait_on_host(const std::function<bool()>& done);

/// A way to wait for a GPU.
class HostWait {
 public:
  virtual ~HostWait() = default;

  /// Returns when `done` has returned true. Rethrows what it throws.
  virtual void until(const std::function<bool()>& done) = 0;
};

/// As long as it lives, all threads of this process wait for its GPU in the way of `wait`, whose `until` may therefore
/// be called from any of them. Replaces the one before it; they end in reverse order.
class [[nodiscard]] WaitOfProcess {
 public:
  explicit WaitOfProcess(HostWait& wait);
  WaitOfProcess(const WaitOfProcess&) = delete;
  WaitOfProcess& operator=(const WaitOfProcess&) = delete;
  ~WaitOfProcess();

 private:
  HostWait* before_;
};

}  // namespace lockstep::detail
