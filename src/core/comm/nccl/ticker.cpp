#include "core/comm/nccl/ticker.hpp"

#include <condition_variable>
#include <mutex>

namespace lockstep {
namespace {

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

std::shared_ptr<Ticker> make_ticker(Seconds beat) {
  return std::make_shared<RealTicker>(beat);
}

}  // namespace lockstep
