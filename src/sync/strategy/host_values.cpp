// Host values that the ranks compare, or that replica 0 sends.
#include <algorithm>
#include <array>

#include <lockstep/sync/strategy/strategy.hpp>

#include "core/control/announced_failure.hpp"
#include "core/control/tag.hpp"
#include "core/values/walks.hpp"
#include "sync/reduce/reductions.hpp"
#include "sync/strategy/strategy_core.hpp"

namespace lockstep {
namespace {

/// The first message. It holds the size of the value and, for most values, all of it.
struct FirstMessage {
  std::uint64_t size = 0;
  std::array<std::byte, 1016> bytes{};
};

TensorView view_of(std::span<std::byte> bytes) {
  return {bytes.data(), {static_cast<std::int64_t>(bytes.size())}, DType::u8, DeviceKind::cpu};
}

}  // namespace

void Strategy::compare(const std::string& text, const Here& here) {
  detail::require_not_another(*this, {"same_on_all", here});
  agree(TagKind::compare, here, text);
}

void Strategy::broadcast_into(detail::AnyValue received, const std::function<void(const Send&)>& make,
                              const Here& here) {
  detail::require_not_another(*this, {"broadcast_object", here});
  require_not_captured(here);
  MeetingPoint& meeting = core_->group.meeting();
  const std::string text = "broadcast_object of " + detail::layout_text(received.type);
  std::vector<std::byte> bytes;
  const auto take = [&] {
    std::span<const std::byte> left{bytes};
    detail::take_bytes(received.type, received.address, left);
  };
  if (core_->group.rank() == 0) {
    const auto alone = meeting.working_alone();
    detail::announcing_failure(
        meeting, [&] { make([&](const void* value) { detail::append_bytes(received.type, value, bytes); }); });
    agree(TagKind::broadcast, here, text);
  } else {
    agree(TagKind::broadcast, here, text);
  }

  const auto broadcast = [&](std::span<std::byte> some) {
    const TensorView view = view_of(some);
    reductions().broadcast(std::span{&view, 1}, 0);
  };
  FirstMessage first{.size = bytes.size()};
  std::copy_n(bytes.begin(), std::min(bytes.size(), first.bytes.size()), first.bytes.begin());
  broadcast(std::as_writable_bytes(std::span{&first, 1}));
  detail::announcing_failure(meeting, [&] { bytes.resize(static_cast<std::size_t>(first.size)); });
  const std::size_t sent = std::min(bytes.size(), first.bytes.size());
  std::copy_n(first.bytes.begin(), sent, bytes.begin());
  if (sent == bytes.size()) return take();
  agree(TagKind::broadcast, here, "memory for " + text);  // else the others would wait for a rank without memory
  broadcast(std::span{bytes}.subspan(sent));
  take();
}

}  // namespace lockstep
