#include "control/heartbeat_message.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <type_traits>

#include <fmt/format.h>
#include <sodium.h>
#include <sys/random.h>

#include <lockstep/base/error.hpp>

#include "base/file_io.hpp"
#include "base/system_error.hpp"
#include "control/tag.hpp"

namespace lockstep {
namespace {

using SealBytes = std::array<unsigned char, 16>;
static_assert(SealBytes{}.size() >= crypto_generichash_BYTES_MIN &&
              HeartbeatKey{}.size() >= crypto_generichash_KEYBYTES_MIN);

/// A text with its end, which a Tag's may lack.
using Text = std::array<char, Tag::site_capacity + 1>;

/// All ranks run the same program on the same kind of machine.
struct Content {
  std::uint64_t sequence;
  std::uint64_t heartbeat;
  std::uint64_t meeting;
  std::uint64_t group;
  std::uint64_t meetings;
  std::uint64_t waits_at;
  std::uint64_t since_in;
  std::array<PhaseTable::Met, PhaseTable::groups_shown> groups;
  std::uint64_t step;
  std::uint64_t since;
  std::uint64_t resident;
  std::uint64_t peak;
  std::uint64_t progress;
  std::int64_t number;
  std::uint32_t asked;
  std::uint32_t answered;
  std::uint32_t count;
  std::int32_t rank;
  std::uint32_t observed_count;
  std::int32_t observed_row;
  std::uint8_t phase;
  std::uint8_t kind;
  std::uint8_t where;
  std::uint8_t run_kind;
  std::uint8_t open_line;
  std::uint8_t flags;
  Text site;
  Text site_of_run;
};

struct Sealed {
  Content content;
  SealBytes seal;
};
static_assert(std::has_unique_object_representations_v<Sealed>, "padding would carry other memory of the process");
static_assert(sizeof(Sealed) == sealed_heartbeat_bytes);

enum Flag : std::uint8_t { terminated = 1, reported = 2, warned = 4, stack_kept = 8, more_groups = 16, all_flags = 31 };

SealBytes seal_of(const Content& content, const HeartbeatKey& key) {
  SealBytes made;
  // BLAKE2b with a key.
  crypto_generichash(made.data(), made.size(), reinterpret_cast<const unsigned char*>(&content), sizeof content,
                     key.data(), key.size());
  return made;
}

bool is_text(const Text& text) {
  const auto end = std::ranges::find(text, '\0');
  return end != text.end() && std::none_of(text.begin(), end, [](char c) {
           const auto byte = static_cast<unsigned char>(c);
           return byte < 0x20 || byte == 0x7f;
         });
}

template <class Enum>
bool is_one_of(std::uint8_t value, Enum last) {
  return value <= static_cast<std::uint8_t>(last);
}

bool is_valid(const Content& content, int ranks) {
  return content.rank >= 0 && content.rank < ranks && content.observed_row >= 0 && content.observed_row < ranks &&
         is_one_of(content.phase, Phase::device) && is_one_of(content.kind, TagKind::open_sum) &&
         is_one_of(content.where, Position::Where::after_run) &&
         is_one_of(content.run_kind, detail::RunKind::prediction) && is_one_of(content.open_line, OpenLine::over) &&
         content.number >= 0 && content.number <= std::numeric_limits<std::int32_t>::max() &&
         content.flags <= all_flags && is_text(content.site) && is_text(content.site_of_run);
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
  Sealed sealed = {};
  Content& content = sealed.content;
  const PhaseTable::Snapshot& row = message.row;
  content.sequence = message.sequence;
  content.heartbeat = row.heartbeat;
  content.meeting = row.meeting;
  content.group = row.group;
  content.meetings = row.meetings;
  content.waits_at = row.waits_at;
  content.since_in = row.position.group;
  content.groups = row.groups;
  content.step = row.position.step;
  content.since = row.position.since;
  content.resident = row.memory.resident;
  content.peak = row.memory.peak;
  content.progress = row.progress;
  content.number = row.number;
  content.asked = message.questions.asked;
  content.answered = message.questions.answered;
  content.count = row.last.count;
  content.rank = message.rank;
  content.observed_count = message.observed.count;
  content.observed_row = message.observed.row;
  content.phase = static_cast<std::uint8_t>(row.phase);
  content.kind = static_cast<std::uint8_t>(row.last.kind);
  content.where = static_cast<std::uint8_t>(row.position.where);
  content.run_kind = static_cast<std::uint8_t>(row.position.kind);
  content.open_line = static_cast<std::uint8_t>(message.open_line);
  content.flags = static_cast<std::uint8_t>((row.terminated ? terminated : 0) | (message.reported ? reported : 0) |
                                            (message.warned ? warned : 0) | (row.stack_kept ? stack_kept : 0) |
                                            (row.has_more_groups ? more_groups : 0));
  std::copy_n(row.last.site, sizeof row.last.site, content.site.begin());
  std::copy_n(row.position.site, sizeof row.position.site, content.site_of_run.begin());
  sealed.seal = seal_of(content, key);
  SealedHeartbeat bytes;
  std::memcpy(bytes.data(), &sealed, sizeof sealed);
  return bytes;
}

std::optional<HeartbeatMessage> open_sealed(std::span<const std::byte> bytes, const HeartbeatKey& key, int ranks) {
  Sealed sealed;
  if (bytes.size() != sizeof sealed) return std::nullopt;
  std::memcpy(&sealed, bytes.data(), sizeof sealed);
  const Content& content = sealed.content;
  // In constant time: how long it takes must not say how much of the seal is right.
  const SealBytes right = seal_of(content, key);
  if (sodium_memcmp(right.data(), sealed.seal.data(), right.size()) != 0) return std::nullopt;
  if (!is_valid(content, ranks)) return std::nullopt;
  HeartbeatMessage message;
  message.sequence = content.sequence;
  message.rank = content.rank;
  message.reported = (content.flags & reported) != 0;
  message.warned = (content.flags & warned) != 0;
  message.observed = {content.observed_count, content.observed_row};
  message.questions = {content.asked, content.answered};
  message.open_line = static_cast<OpenLine>(content.open_line);
  PhaseTable::Snapshot& row = message.row;
  row.phase = static_cast<Phase>(content.phase);
  row.terminated = (content.flags & terminated) != 0;
  row.stack_kept = (content.flags & stack_kept) != 0;
  row.memory = {content.resident, content.peak};
  row.progress = content.progress;
  row.number = static_cast<std::int32_t>(content.number);
  row.heartbeat = content.heartbeat;
  row.meeting = content.meeting;
  row.group = content.group;
  row.meetings = content.meetings;
  row.waits_at = content.waits_at;
  row.position.group = content.since_in;
  row.groups = content.groups;
  row.has_more_groups = (content.flags & more_groups) != 0;
  row.last.kind = static_cast<TagKind>(content.kind);
  row.last.count = content.count;
  std::copy_n(content.site.begin(), sizeof row.last.site, row.last.site);
  row.position.where = static_cast<Position::Where>(content.where);
  row.position.kind = static_cast<detail::RunKind>(content.run_kind);
  row.position.step = content.step;
  row.position.since = content.since;
  std::copy_n(content.site_of_run.begin(), sizeof row.position.site, row.position.site);
  return message;
}

}  // namespace lockstep
