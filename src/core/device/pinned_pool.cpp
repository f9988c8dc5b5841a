#include "core/device/pinned_pool.hpp"

#include <algorithm>
#include <utility>

#include "core/device/device.hpp"

namespace lockstep::detail {

auto PinnedPool::take(std::size_t bytes) -> Pinned {
  {
    const std::lock_guard lock{mutex_};
    const auto fits = std::ranges::find(unused_, bytes, [](const Pinned& each) { return each->bytes(); });
    if (fits != unused_.end()) {
      Pinned taken = std::move(*fits);
      unused_.erase(fits);
      return taken;
    }
  }
  return std::make_shared<const Buffer>(inside(stream_).allocate_pinned(bytes));
}

void PinnedPool::give_back(Pinned pinned) {
  const std::lock_guard lock{mutex_};
  constexpr std::size_t most = 64;
  if (unused_.size() == most) unused_.erase(unused_.begin());
  unused_.push_back(std::move(pinned));
}

}  // namespace lockstep::detail
