#include "comm/nccl/waiting.hpp"

#include <condition_variable>
#include <mutex>
#include <thread>

namespace lockstep {
namespace {

class RealPollClock final : public PollClock {
 public:
  Seconds now() override { return std::chrono::steady_clock::now().time_since_epoch(); }

  void pause(Seconds so_far) override {
    if (so_far < std::chrono::milliseconds{1}) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(std::chrono::milliseconds{1});
    }
  }
};

class RealTicker final : public Ticker {
 public:
  explicit RealTicker(Seconds beat) : beat_{beat} {}

  bool wait() override {
    std::unique_lock lock{mutex_};
    return !changed_.wait_for(lock, beat_, [this] { return stopped_; });
  }

  void stop() override {
    const std::lock_guard lock{mutex_};
    stopped_ = true;
    changed_.notify_all();
  }

 private:
  Seconds beat_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopped_ = false;
};

}  // namespace

std::shared_ptr<PollClock> make_poll_clock() {
  return std::make_shared<RealPollClock>();
}

std::shared_ptr<Ticker> make_ticker(Seconds beat) {
  return std::make_shared<RealTicker>(beat);
}

}  // namespace lockstep
