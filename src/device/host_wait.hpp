// The only place where the host waits for a GPU. It polls: a thread inside the driver could neither be told to give up
// nor say what it waits for, and the driver has no limit of its own.
#pragma once

#include <functional>

namespace lockstep::detail {

/// Blocks the host until `done` returns true, in the way of the innermost HostWait of the process; without one, with no
/// limit. Rethrows what `done` throws.
void wait_on_host(const std::function<bool()>& done);

/// How the threads of this process wait for its GPU. Replaces the one before it for as long as it lives; they end in
/// reverse order.
class HostWait {
 public:
  HostWait();
  HostWait(const HostWait&) = delete;
  HostWait& operator=(const HostWait&) = delete;
  virtual ~HostWait();

  /// From any thread. Returns when `done` has returned true. Rethrows what it throws.
  virtual void until(const std::function<bool()>& done) = 0;

 private:
  HostWait* before_;
};

}  // namespace lockstep::detail
