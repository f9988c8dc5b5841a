// The control plane of a group of one rank.
#include <algorithm>

#include "core/control/channel.hpp"

namespace lockstep {
namespace {

class LocalChannel final : public ControlChannel {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  std::array<std::uint64_t, 2> max(std::array<std::uint64_t, 2> words) override { return words; }
  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all) override {
    std::copy(mine.begin(), mine.end(), all.begin());
  }
  void broadcast(std::span<std::byte>, int) override {}
  std::unique_ptr<Exchange> start_max(std::array<std::uint64_t, 2>&) override { return make_done_exchange(); }
  std::unique_ptr<Exchange> start_all_gather(std::span<const std::byte> mine, std::span<std::byte> all) override {
    all_gather(mine, all);
    return make_done_exchange();
  }
  std::unique_ptr<Exchange> start_broadcast(std::span<std::byte>, int) override { return make_done_exchange(); }
  std::unique_ptr<ControlChannel> subset(std::span<const int>, std::uint64_t) override { return make_local_channel(); }
};

}  // namespace

std::unique_ptr<ControlChannel::Exchange> make_done_exchange() {
  struct Done final : ControlChannel::Exchange {
    bool advance() override { return true; }
  };
  return std::make_unique<Done>();
}

std::unique_ptr<ControlChannel> make_local_channel() {
  return std::make_unique<LocalChannel>();
}

}  // namespace lockstep
