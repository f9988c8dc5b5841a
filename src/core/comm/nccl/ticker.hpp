// The beat of a thread that watches NCCL. Tests provide their own, which beats when they say so.
#pragma once

#include <memory>

#include "core/device/poll_clock.hpp"

namespace lockstep {

/// The beat of a thread that checks something periodically.
class Ticker {
 public:
  virtual ~Ticker() = default;

  /// Blocks until the next beat. False, without a beat, after `stop`.
  virtual bool wait() = 0;

  /// From any thread. No more beats from here on.
  virtual void stop() = 0;
};

std::shared_ptr<Ticker> make_ticker(Seconds beat);

}  // namespace lockstep
