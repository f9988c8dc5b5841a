#include <array>
#include <cstring>

#include <fmt/format.h>
#include <unistd.h>

#include <lockstep/control/phase_table.hpp>

namespace lockstep {
namespace {

constexpr std::size_t site_words = Tag::site_capacity / sizeof(std::uint64_t);
using SiteWords = std::array<std::uint64_t, site_words>;

}  // namespace

struct PhaseTable::Header {
  alignas(128) std::atomic<std::uint32_t> report_claimed;
};

struct alignas(128) PhaseTable::Row {
  std::atomic<std::uint32_t> phase;
  std::atomic<std::int32_t> process;
  std::atomic<std::uint32_t> told_to_end;
  std::atomic<std::uint64_t> heartbeat;
  std::atomic<std::uint64_t> meeting;
  std::atomic<std::uint64_t> sequence;
  std::atomic<std::uint32_t> kind;
  std::atomic<std::uint32_t> depth;
  std::array<std::atomic<std::uint64_t>, site_words> site;

  static_assert(std::atomic<std::uint64_t>::is_always_lock_free, "a lock would not work between processes");
};

std::size_t PhaseTable::bytes_for(int rows) {
  return sizeof(Header) + sizeof(Row) * static_cast<std::size_t>(rows);
}

PhaseTable::PhaseTable(SharedMemory memory, int rows, int row, Processes processes)
    : memory_{std::move(memory)}, rows_{rows}, row_{row} {
  if (processes == Processes::known) row_at(row_).process.store(::getpid(), std::memory_order_relaxed);
  enter(Phase::computing);
}

PhaseTable::Header& PhaseTable::header() const {
  return *static_cast<Header*>(memory_.data());
}

PhaseTable::Row& PhaseTable::row_at(int row) const {
  return reinterpret_cast<Row*>(static_cast<std::byte*>(memory_.data()) + sizeof(Header))[row];
}

void PhaseTable::enter(Phase phase) {
  row_at(row_).phase.store(static_cast<std::uint32_t>(phase), std::memory_order_release);
}

void PhaseTable::enter_meeting(std::uint64_t meeting, const Tag& tag) {
  Row& row = row_at(row_);
  SiteWords words;
  std::memcpy(words.data(), tag.site, sizeof words);
  for (std::size_t i = 0; i < site_words; ++i) row.site[i].store(words[i], std::memory_order_relaxed);
  row.sequence.store(tag.sequence, std::memory_order_relaxed);
  row.kind.store(static_cast<std::uint32_t>(tag.kind), std::memory_order_relaxed);
  row.depth.store(tag.depth, std::memory_order_relaxed);
  row.meeting.store(meeting, std::memory_order_relaxed);
  enter(Phase::meeting);
}

void PhaseTable::told_to_end() {
  row_at(row_).told_to_end.store(1, std::memory_order_release);
}

void PhaseTable::beat() {
  row_at(row_).heartbeat.fetch_add(1, std::memory_order_relaxed);
}

PhaseTable::Snapshot PhaseTable::read(int index) const {
  const Row& row = row_at(index);
  Snapshot snapshot;
  snapshot.phase = static_cast<Phase>(row.phase.load(std::memory_order_acquire));
  snapshot.process = row.process.load(std::memory_order_relaxed);
  snapshot.told_to_end = row.told_to_end.load(std::memory_order_acquire) != 0;
  snapshot.heartbeat = row.heartbeat.load(std::memory_order_relaxed);
  snapshot.meeting = row.meeting.load(std::memory_order_relaxed);
  snapshot.last.kind = static_cast<TagKind>(row.kind.load(std::memory_order_relaxed));
  snapshot.last.sequence = row.sequence.load(std::memory_order_relaxed);
  snapshot.last.depth = static_cast<std::uint8_t>(row.depth.load(std::memory_order_relaxed));
  SiteWords words;
  for (std::size_t i = 0; i < site_words; ++i) words[i] = row.site[i].load(std::memory_order_relaxed);
  std::memcpy(snapshot.last.site, words.data(), sizeof words);
  return snapshot;
}

bool PhaseTable::claim_report() {
  std::uint32_t unclaimed = 0;
  return header().report_claimed.compare_exchange_strong(unclaimed, 1);
}

std::string describe(const PhaseTable::Snapshot& row) {
  const std::string last = row.meeting == 0 ? "the start of the job" : describe(row.last);
  switch (row.phase) {
    case Phase::absent: return "has not started";
    case Phase::computing: return fmt::format("was computing after {}", last);
    case Phase::meeting: return fmt::format("was waiting at {}", last);
    case Phase::alone: return fmt::format("was working alone after {}", last);
    case Phase::leaving: return "was leaving the job";
  }
  return "?";
}

}  // namespace lockstep
