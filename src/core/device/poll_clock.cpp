#include "core/device/poll_clock.hpp"

#include <algorithm>
#include <thread>

namespace lockstep {
namespace {

constexpr Seconds without_sleep{2e-3};
constexpr Seconds longest_sleep{1e-3};

class RealPollClock final : public PollClock {
 public:
  Seconds now() override { return std::chrono::steady_clock::now().time_since_epoch(); }

  void pause(Seconds so_far) override {
    if (so_far < without_sleep) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(std::min(so_far / 50, longest_sleep));
    }
  }
};

}  // namespace

std::shared_ptr<PollClock> make_poll_clock() {
  return std::make_shared<RealPollClock>();
}

}  // namespace lockstep
