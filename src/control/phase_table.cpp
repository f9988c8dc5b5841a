#include "control/phase_table.hpp"

#include <array>
#include <cstring>

#include <fmt/format.h>
#include <unistd.h>

namespace lockstep {
namespace {

constexpr std::size_t site_words = Tag::site_capacity / sizeof(std::uint64_t);
using SiteWords = std::array<std::uint64_t, site_words>;

}  // namespace

struct PhaseTable::Header {
  alignas(128) std::atomic<std::uint32_t> report_claimed;
  std::atomic<int> finished;
};

struct alignas(128) PhaseTable::Row {
  std::atomic<std::uint32_t> phase;
  std::atomic<std::int32_t> process;
  std::atomic<std::uint32_t> terminated;
  std::atomic<std::uint64_t> heartbeat;
  std::atomic<std::uint64_t> meeting;
  std::atomic<std::uint64_t> sequence;
  std::atomic<std::uint32_t> kind;
  std::atomic<std::uint32_t> depth;
  std::array<std::atomic<std::uint64_t>, site_words> site;

  static_assert(std::atomic<std::uint64_t>::is_always_lock_free, "a lock would not work between processes");

  void set_meeting(std::uint64_t number, const Tag& tag) {
    SiteWords words;
    std::memcpy(words.data(), tag.site, sizeof words);
    for (std::size_t i = 0; i < site_words; ++i) site[i].store(words[i], std::memory_order_relaxed);
    sequence.store(tag.sequence, std::memory_order_relaxed);
    kind.store(static_cast<std::uint32_t>(tag.kind), std::memory_order_relaxed);
    depth.store(tag.depth, std::memory_order_relaxed);
    meeting.store(number, std::memory_order_relaxed);
  }
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
  row_at(row_).set_meeting(meeting, tag);
  enter(Phase::meeting);
}

void PhaseTable::beat() {
  row_at(row_).heartbeat.fetch_add(1, std::memory_order_relaxed);
}

void PhaseTable::set_terminated() {
  row_at(row_).terminated.store(1, std::memory_order_release);
}

PhaseTable::Snapshot PhaseTable::read(int index) const {
  const Row& row = row_at(index);
  Snapshot snapshot;
  // The heartbeat first: whatever is read after it is at least as new.
  snapshot.heartbeat = row.heartbeat.load(std::memory_order_acquire);
  snapshot.phase = static_cast<Phase>(row.phase.load(std::memory_order_acquire));
  snapshot.process = row.process.load(std::memory_order_relaxed);
  snapshot.terminated = row.terminated.load(std::memory_order_acquire) != 0;
  snapshot.meeting = row.meeting.load(std::memory_order_relaxed);
  snapshot.last.kind = static_cast<TagKind>(row.kind.load(std::memory_order_relaxed));
  snapshot.last.sequence = row.sequence.load(std::memory_order_relaxed);
  snapshot.last.depth = static_cast<std::uint8_t>(row.depth.load(std::memory_order_relaxed));
  SiteWords words;
  for (std::size_t i = 0; i < site_words; ++i) words[i] = row.site[i].load(std::memory_order_relaxed);
  std::memcpy(snapshot.last.site, words.data(), sizeof words);
  return snapshot;
}

void PhaseTable::write(int index, const Snapshot& seen) {
  Row& row = row_at(index);
  row.set_meeting(seen.meeting, seen.last);
  row.terminated.store(seen.terminated, std::memory_order_relaxed);
  row.phase.store(static_cast<std::uint32_t>(seen.phase), std::memory_order_release);
  row.heartbeat.store(seen.heartbeat, std::memory_order_release);
}

bool PhaseTable::reported() const {
  return header().report_claimed.load(std::memory_order_relaxed) != 0;
}

void PhaseTable::count_finished() {
  header().finished.fetch_add(1, std::memory_order_relaxed);
}

int PhaseTable::finished() const {
  return header().finished.load(std::memory_order_relaxed);
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
