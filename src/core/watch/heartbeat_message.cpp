#include "core/watch/heartbeat_message.hpp"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <limits>
#include <type_traits>

#include <fmt/format.h>
#include <sodium.h>
#include <sys/random.h>

#include <lockstep/core/base/error.hpp>

#include "core/base/file_io.hpp"
#include "core/base/system_error.hpp"

namespace lockstep {
namespace {

using Seal = std::array<unsigned char, seal_bytes>;
static_assert(seal_bytes >= crypto_generichash_BYTES_MIN && HeartbeatKey{}.size() >= crypto_generichash_KEYBYTES_MIN);

struct Sealed {
  HeartbeatMessage message;
  Seal seal;
};
static_assert(std::has_unique_object_representations_v<Sealed>, "padding would carry other memory of the process");
static_assert(sizeof(Sealed) == sealed_heartbeat_bytes);

/// BLAKE2b with a key.
Seal seal_of(const HeartbeatMessage& message, const HeartbeatKey& key) {
  Seal made;
  crypto_generichash(made.data(), made.size(), reinterpret_cast<const unsigned char*>(&message), sizeof message,
                     key.data(), key.size());
  return made;
}

bool is_text(std::span<const char> site) {
  return std::none_of(site.begin(), std::ranges::find(site, '\0'), [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return byte < 0x20 || byte == 0x7f;
  });
}

bool is_valid(const HeartbeatMessage& message, int ranks) {
  const auto is_rank = [ranks](int rank) { return rank >= 0 && rank < ranks; };
  const PhaseTable::Snapshot& row = message.row;
  return message.sequence <= std::numeric_limits<std::uint32_t>::max() && is_rank(message.rank) &&
         is_rank(message.observed.row) && message.reported <= 1 && message.warned <= 1 &&
         message.route <= NodeMap::routes && message.lost <= static_cast<std::uint32_t>(ranks) &&
         message.speaker.node <= ranks && message.open_line <= OpenLine::over && row.phase <= Phase::device &&
         row.process.here == 0 && row.process.there >= 0 && row.terminated <= 1 && row.ended_by == 0 &&
         row.passed == 0 && row.last.kind <= TagKind::open_sum && row.position.where <= Position::Where::in_phase &&
         row.position.kind <= detail::RunKind::prediction && is_text(row.last.site) && is_text(row.position.site);
}

}  // namespace

HeartbeatKey make_heartbeat_key() {
  HeartbeatKey key;
  const ssize_t got = uninterrupted([&] { return ::getrandom(key.data(), key.size(), 0); });
  if (got != static_cast<ssize_t>(key.size()))
    throw CommError{fmt::format("a key for the heartbeats between nodes: getrandom: {}", error_text(errno))};
  return key;
}

SealedHeartbeat seal(const HeartbeatMessage& message, const HeartbeatKey& key) {
  Sealed sealed{message, {}};
  PhaseTable::Snapshot& row = sealed.message.row;
  row.process.here = 0;
  row.passed = row.ended_by = 0;
  sealed.seal = seal_of(sealed.message, key);
  return std::bit_cast<SealedHeartbeat>(sealed);
}

std::optional<HeartbeatMessage> open_sealed(std::span<const std::byte> bytes, const HeartbeatKey& key, int ranks) {
  Sealed sealed;
  if (bytes.size() != sizeof sealed) return std::nullopt;
  std::memcpy(&sealed, bytes.data(), sizeof sealed);
  // In constant time: how long it takes must not say how much of the seal is right.
  const Seal right = seal_of(sealed.message, key);
  if (sodium_memcmp(right.data(), sealed.seal.data(), right.size()) != 0) return std::nullopt;
  return is_valid(sealed.message, ranks) ? std::optional{sealed.message} : std::nullopt;
}

}  // namespace lockstep
