#include <algorithm>
#include <array>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <lockstep/core/base/hex.hpp>
#include <lockstep/sync/strategy/strategy.hpp>

#include "core/base/digest.hpp"
#include "core/control/announced_failure.hpp"
#include "core/control/tag.hpp"
#include "core/tensor/digest.hpp"
#include "sync/reduce/reductions.hpp"
#include "sync/strategy/strategy_core.hpp"
#include "sync/strategy/type_text.hpp"

namespace lockstep {
namespace {

std::string comparable_digest(std::string_view type, std::uint64_t digest) {
  return fmt::format("{} of digest {}", type, to_hex(digest));
}

/// The first message. It holds the size of the value and, for most values, all of it.
struct FirstMessage {
  std::uint64_t size = 0;
  std::array<std::byte, 1016> bytes{};
};

TensorView view_of(std::span<std::byte> bytes) {
  return {bytes.data(), {static_cast<std::int64_t>(bytes.size())}, DType::u8, DeviceKind::cpu};
}

}  // namespace

namespace detail {

std::string comparable_text(double value) {
  return fmt::format("{}", value);
}
std::string comparable_text(long long value) {
  return fmt::format("{}", value);
}
std::string comparable_text(std::string_view value) {
  // A quote inside could make two texts read alike, and a control character would not be shown as it is.
  const bool plain = std::all_of(value.begin(), value.end(), [](unsigned char c) { return c >= ' ' && c != '\''; });
  return plain && value.size() < 100 ? fmt::format("'{}'", value) : comparable_digest("text", digest_of(value));
}
std::string comparable_text(const Tensor& value) {
  return comparable_digest(describe(value.view()), digest_of_elements(value.view()));
}
std::string comparable_list(const std::vector<std::string>& texts) {
  const std::string all = fmt::format("[{}]", fmt::join(texts, " "));
  return all.size() < 100 ? all : comparable_digest("values", digest_of(all));
}
std::string comparable_bytes(std::span<const std::byte> value) {
  return comparable_digest("value", digest_of(value));
}
std::string flat_layout(const std::type_info& type, std::size_t bytes) {
  return fmt::format("{} of {} bytes", type_text(type), bytes);
}

}  // namespace detail

void Strategy::compare(const std::string& text, const Here& here) {
  detail::require_not_another(*this, {"same_on_all", here});
  agree(TagKind::compare, here, text);
}

std::vector<std::byte> Strategy::broadcast_bytes(const std::string& layout, const MakeBytes& make, const Here& here) {
  detail::require_not_another(*this, {"broadcast_object", here});
  require_not_captured(here);
  MeetingPoint& meeting = core_->group.meeting();
  const std::string text = "broadcast_object of " + layout;
  std::vector<std::byte> bytes;
  if (core_->group.rank() == 0) {
    const auto alone = meeting.working_alone();
    bytes = detail::announcing_failure(meeting, make);
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
  if (sent == bytes.size()) return bytes;
  agree(TagKind::broadcast, here, "memory for " + text);  // else the others would wait for a rank without memory
  broadcast(std::span{bytes}.subspan(sent));
  return bytes;
}

}  // namespace lockstep
