#include "control/phase_table.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include <fmt/format.h>
#include <unistd.h>

#include "control/tag.hpp"
#include "control/tag_text.hpp"

namespace lockstep {
namespace {

constexpr std::uint32_t claimed = 1, claimed_with = 2;

constexpr std::size_t site_words = Tag::site_capacity / sizeof(std::uint64_t);

/// A place in the program as it is in shared memory.
struct Site {
  std::array<std::atomic<std::uint64_t>, site_words> words;

  void set(const char* site) {
    std::array<std::uint64_t, site_words> copied;
    std::memcpy(copied.data(), site, sizeof copied);
    for (std::size_t i = 0; i < site_words; ++i) words[i].store(copied[i], std::memory_order_relaxed);
  }
  void get(char* site) const {
    std::array<std::uint64_t, site_words> copied;
    for (std::size_t i = 0; i < site_words; ++i) copied[i] = words[i].load(std::memory_order_relaxed);
    std::memcpy(site, copied.data(), sizeof copied);
  }
};

/// Both numbers in one word, so that they change together.
std::uint64_t word_of(const PhaseTable::Questions& questions) {
  return std::uint64_t{questions.asked} << 32 | questions.answered;
}

PhaseTable::Questions questions_in(std::uint64_t word) {
  return {static_cast<std::uint32_t>(word >> 32), static_cast<std::uint32_t>(word)};
}

/// Whether `next`, called with the numbers as they are, changes them.
template <class Next>
bool change(std::atomic<std::uint64_t>& questions, Next&& next) {
  std::uint64_t before = questions.load();
  while (true) {
    const std::uint64_t after = word_of(next(questions_in(before)));
    if (after == before) return false;
    if (questions.compare_exchange_weak(before, after)) return true;
  }
}

}  // namespace

struct PhaseTable::OpenGroups {
  std::mutex mutex;
  std::map<std::uint64_t, std::vector<int>> members;  ///< by key, under `mutex`

  // Other threads than that which made the table may write its row as soon as something was started.
  std::thread::id owner = std::this_thread::get_id();
  std::atomic<bool> has_started = false;
  std::mutex row;
  bool hides_alone = false;  ///< under `row`: the wait that is shown interrupts work that this rank does alone

  std::unique_lock<std::mutex> lock_row() {
    return has_started ? std::unique_lock{row} : std::unique_lock<std::mutex>{};
  }
};

struct PhaseTable::Header {
  alignas(128) std::atomic<std::uint32_t> report_claimed;  ///< 0, `claimed`, or `claimed_with` plus an exit code
  std::atomic<int> finished;
  std::atomic<std::uint32_t> open_line;
  std::atomic<std::uint32_t> warned;
  std::atomic<std::uint64_t> observed;   ///< count and row
  std::atomic<std::uint64_t> questions;  ///< asked and answered
};

struct alignas(128) PhaseTable::Row {
  struct MetIn {
    std::atomic<std::uint64_t> group;
    std::atomic<std::uint64_t> number;
  };

  std::atomic<std::uint32_t> phase;
  std::atomic<std::int32_t> process;
  std::atomic<std::int32_t> number;
  std::atomic<std::uint32_t> terminated;
  std::atomic<std::uint32_t> ended_by;
  std::atomic<std::uint64_t> heartbeat;
  std::atomic<std::uint64_t> meeting;
  std::atomic<std::uint64_t> passed;
  std::atomic<std::uint64_t> group;
  std::atomic<std::uint32_t> groups_not_shown;
  std::atomic<std::uint64_t> meetings;
  std::array<MetIn, groups_shown> groups;
  std::atomic<std::uint64_t> waits_at;
  std::atomic<std::uint64_t> observed;  ///< its meetings when the rank was said to stall, and 1
  std::atomic<std::uint64_t> stack;     ///< its meetings when its stack was kept, and 1
  std::atomic<std::uint64_t> resident;
  std::atomic<std::uint64_t> peak;
  std::atomic<std::uint64_t> progress;
  std::atomic<std::uint32_t> count;
  std::atomic<std::uint32_t> kind;
  Site site;
  std::atomic<std::uint32_t> where;
  std::atomic<std::uint32_t> run_kind;
  std::atomic<std::uint64_t> step;
  std::atomic<std::uint64_t> since;
  std::atomic<std::uint64_t> since_in;  ///< the group that counts that
  Site site_of_run;

  static_assert(std::atomic<std::uint64_t>::is_always_lock_free, "a lock would not work between processes");

  /// Shows the group, if there is room.
  bool show(std::uint64_t key) {
    const auto unused = std::ranges::find_if(groups, [](const MetIn& each) { return each.group.load() == 0; });
    if (unused == groups.end()) return false;
    unused->number.store(0);
    unused->group.store(key);
    return true;
  }

  /// Where the number of the group stands; null if it is not shown.
  std::atomic<std::uint64_t>* number_of(std::uint64_t key) {
    if (key == 0) return &meeting;
    const auto found = std::ranges::find_if(groups, [&](const MetIn& each) { return each.group.load() == key; });
    return found == groups.end() ? nullptr : &found->number;
  }
  void set_last(const Tag& tag, std::uint64_t key) {
    site.set(tag.site);
    count.store(tag.count, std::memory_order_relaxed);
    kind.store(static_cast<std::uint32_t>(tag.kind), std::memory_order_relaxed);
    group.store(key, std::memory_order_relaxed);
  }
  void set_position(const Position& position) {
    site_of_run.set(position.site);
    where.store(static_cast<std::uint32_t>(position.where), std::memory_order_relaxed);
    run_kind.store(static_cast<std::uint32_t>(position.kind), std::memory_order_relaxed);
    step.store(position.step, std::memory_order_relaxed);
    since.store(position.since, std::memory_order_relaxed);
    since_in.store(position.group, std::memory_order_relaxed);
  }
};

std::size_t PhaseTable::bytes_for(int rows) {
  return sizeof(Header) + sizeof(Row) * static_cast<std::size_t>(rows);
}

PhaseTable::PhaseTable(SharedMemory memory, int rows, int row, Processes processes)
    : memory_{std::move(memory)}, rows_{rows}, row_{row}, open_{std::make_shared<OpenGroups>()} {
  row_at(row_).number.store(::getpid(), std::memory_order_relaxed);
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
  const auto lock = open_->lock_row();
  show(phase);
}

void PhaseTable::show(Phase phase) {
  row_at(row_).phase.store(static_cast<std::uint32_t>(phase), std::memory_order_release);
}

Phase PhaseTable::phase() const {
  return static_cast<Phase>(row_at(row_).phase.load(std::memory_order_relaxed));
}

void PhaseTable::enter_meeting(std::uint64_t meeting, const Tag& tag, std::uint64_t group) {
  const auto lock = open_->lock_row();
  Row& row = row_at(row_);
  // Groups that were shown may have gone.
  if (!row.number_of(group) && row.show(group)) row.groups_not_shown.fetch_sub(1);
  row.set_last(tag, group);
  if (auto* const number = row.number_of(group)) number->store(meeting, std::memory_order_relaxed);
  row.waits_at.store(0, std::memory_order_relaxed);
  row.meetings.store(row.meetings.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  show(Phase::meeting);
}

void PhaseTable::leave_meeting(std::uint64_t group) {
  Row& row = row_at(row_);
  if (group == 0) row.passed.store(row.meeting.load(std::memory_order_relaxed), std::memory_order_relaxed);
  const auto lock = open_->lock_row();
  show(Phase::computing);
}

void PhaseTable::come_to(std::uint64_t meeting, std::uint64_t group) {
  open_->has_started = true;
  auto* const number = row_at(row_).number_of(group);
  if (!number) return;
  std::uint64_t before = number->load();
  while (before < meeting && !number->compare_exchange_weak(before, meeting)) continue;
}

void PhaseTable::show_wait(std::uint64_t meeting, const Tag& tag, std::uint64_t group) {
  come_to(meeting, group);
  const std::scoped_lock lock{open_->row};
  const bool is_alone = phase() == Phase::alone && std::this_thread::get_id() == open_->owner;
  if (phase() != Phase::computing && !is_alone) return;
  Row& row = row_at(row_);
  row.set_last(tag, group);
  row.waits_at.store(meeting);
  row.meetings.fetch_add(1);
  open_->hides_alone = is_alone;
  show(Phase::meeting);
}

void PhaseTable::hide_wait(std::uint64_t meeting, std::uint64_t group) {
  const std::scoped_lock lock{open_->row};
  Row& row = row_at(row_);
  if (phase() != Phase::meeting || row.group.load() != group || row.waits_at.load() != meeting) return;
  row.waits_at.store(0);
  show(std::exchange(open_->hides_alone, false) ? Phase::alone : Phase::computing);
}

void PhaseTable::open_group(const Members& members) {
  Row& row = row_at(row_);
  {
    const std::scoped_lock lock{open_->mutex};
    open_->members[members.key] = members.ranks;
  }
  if (!row.show(members.key)) row.groups_not_shown.fetch_add(1);
}

void PhaseTable::close_group(std::uint64_t group) {
  Row& row = row_at(row_);
  {
    const std::scoped_lock lock{open_->mutex};
    open_->members.erase(group);
  }
  if (row.group.load() == group) row.group.store(0);
  const auto shown =
      std::ranges::find_if(row.groups, [&](const Row::MetIn& each) { return each.group.load() == group; });
  if (shown == row.groups.end())
    row.groups_not_shown.fetch_sub(1);
  else
    shown->group.store(0);
}

std::vector<int> PhaseTable::members_of(std::uint64_t group) const {
  const std::scoped_lock lock{open_->mutex};
  const auto found = open_->members.find(group);
  return found == open_->members.end() ? std::vector<int>{} : found->second;
}

bool PhaseTable::Snapshot::shows(std::uint64_t key) const {
  return key == 0 || std::ranges::find(groups, key, &Met::group) != groups.end();
}

std::optional<std::uint64_t> PhaseTable::Snapshot::met_in(std::uint64_t key) const {
  if (key == 0) return meeting;
  const auto found = std::ranges::find(groups, key, &Met::group);
  if (found != groups.end()) return found->number;
  return has_more_groups ? std::nullopt : std::optional<std::uint64_t>{0};
}

void PhaseTable::move_to(const Position& position) {
  row_at(row_).set_position(position);
}

void PhaseTable::beat() {
  row_at(row_).heartbeat.fetch_add(1, std::memory_order_relaxed);
}

void PhaseTable::set_terminated() {
  row_at(row_).terminated.store(1, std::memory_order_release);
}

std::atomic<std::uint32_t>& PhaseTable::ending_signal() const {
  return row_at(row_).ended_by;
}

void PhaseTable::set_memory(const MemoryUse& memory) {
  row_at(row_).resident.store(memory.resident, std::memory_order_relaxed);
  row_at(row_).peak.store(memory.peak, std::memory_order_relaxed);
}

void PhaseTable::set_progress(std::uint64_t progress) {
  row_at(row_).progress.store(progress, std::memory_order_relaxed);
}

std::uint64_t PhaseTable::progress() const {
  std::uint64_t all = 0;
  for (int row = 0; row < rows_; ++row) all += row_at(row).progress.load(std::memory_order_relaxed);
  return all;
}

void PhaseTable::set_stack_kept(std::uint64_t meetings) {
  row_at(row_).stack.store(meetings + 1, std::memory_order_relaxed);
}

PhaseTable::Snapshot PhaseTable::read(int index) const {
  const Row& row = row_at(index);
  Snapshot snapshot;
  // The heartbeat first: whatever is read after it is at least as new.
  snapshot.heartbeat = row.heartbeat.load(std::memory_order_acquire);
  snapshot.phase = static_cast<Phase>(row.phase.load(std::memory_order_acquire));
  snapshot.process = row.process.load(std::memory_order_relaxed);
  snapshot.number = row.number.load(std::memory_order_relaxed);
  snapshot.terminated = row.terminated.load(std::memory_order_acquire) != 0;
  snapshot.ended_by = static_cast<int>(row.ended_by.load(std::memory_order_relaxed));
  snapshot.meeting = row.meeting.load(std::memory_order_relaxed);
  snapshot.passed = row.passed.load(std::memory_order_relaxed);
  snapshot.group = row.group.load(std::memory_order_relaxed);
  for (std::size_t i = 0; i < groups_shown; ++i)
    snapshot.groups[i] = {row.groups[i].group.load(), row.groups[i].number.load()};
  snapshot.waits_at = row.waits_at.load(std::memory_order_relaxed);
  snapshot.has_more_groups = row.groups_not_shown.load() > 0;
  snapshot.meetings = row.meetings.load(std::memory_order_relaxed);
  snapshot.last.kind = static_cast<TagKind>(row.kind.load(std::memory_order_relaxed));
  snapshot.last.count = row.count.load(std::memory_order_relaxed);
  row.site.get(snapshot.last.site);
  snapshot.position.where = static_cast<Position::Where>(row.where.load(std::memory_order_relaxed));
  snapshot.position.kind = static_cast<detail::RunKind>(row.run_kind.load(std::memory_order_relaxed));
  snapshot.position.step = row.step.load(std::memory_order_relaxed);
  snapshot.position.since = row.since.load(std::memory_order_relaxed);
  snapshot.position.group = row.since_in.load(std::memory_order_relaxed);
  row.site_of_run.get(snapshot.position.site);
  snapshot.memory = {row.resident.load(std::memory_order_relaxed), row.peak.load(std::memory_order_relaxed)};
  snapshot.progress = row.progress.load(std::memory_order_relaxed);
  snapshot.stack_kept = row.stack.load(std::memory_order_relaxed) == snapshot.meetings + 1;
  return snapshot;
}

void PhaseTable::write(int index, const Snapshot& seen) {
  Row& row = row_at(index);
  row.set_last(seen.last, seen.group);
  row.meeting.store(seen.meeting, std::memory_order_relaxed);
  for (std::size_t i = 0; i < groups_shown; ++i) {
    row.groups[i].number.store(seen.groups[i].number);
    row.groups[i].group.store(seen.groups[i].group);
  }
  row.waits_at.store(seen.waits_at, std::memory_order_relaxed);
  row.groups_not_shown.store(seen.has_more_groups ? 1 : 0);
  row.meetings.store(seen.meetings, std::memory_order_relaxed);
  row.set_position(seen.position);
  row.terminated.store(seen.terminated, std::memory_order_relaxed);
  row.number.store(seen.number, std::memory_order_relaxed);
  row.resident.store(seen.memory.resident, std::memory_order_relaxed);
  row.peak.store(seen.memory.peak, std::memory_order_relaxed);
  row.progress.store(seen.progress, std::memory_order_relaxed);
  row.stack.store(seen.stack_kept ? seen.meetings + 1 : 0, std::memory_order_relaxed);
  row.phase.store(static_cast<std::uint32_t>(seen.phase), std::memory_order_release);
  row.heartbeat.store(seen.heartbeat, std::memory_order_release);
}

bool PhaseTable::reported() const {
  return header().report_claimed.load(std::memory_order_relaxed) != 0;
}

std::atomic<std::uint32_t>& PhaseTable::open_line() const {
  return header().open_line;
}

void PhaseTable::count_finished() {
  header().finished.fetch_add(1, std::memory_order_relaxed);
}

int PhaseTable::finished() const {
  return header().finished.load(std::memory_order_relaxed);
}

bool PhaseTable::claim_report(std::optional<int> code) {
  std::uint32_t unclaimed = 0;
  return header().report_claimed.compare_exchange_strong(
      unclaimed, code ? claimed_with + static_cast<std::uint32_t>(*code) : claimed);
}

int PhaseTable::code_of_report(int own) const {
  const std::uint32_t claim = header().report_claimed.load(std::memory_order_relaxed);
  return claim >= claimed_with ? static_cast<int>(claim - claimed_with) : own;
}

bool PhaseTable::claim_warning() {
  return header().warned.exchange(1) == 0;
}

bool PhaseTable::warned() const {
  return header().warned.load(std::memory_order_relaxed) != 0;
}

bool PhaseTable::is_observed(int row) const {
  return row_at(row).observed.load() == row_at(row).meetings.load() + 1;
}

bool PhaseTable::observe(int row) {
  const std::uint64_t next = row_at(row).meetings.load() + 1;
  return row_at(row).observed.exchange(next) != next;
}

PhaseTable::Observed PhaseTable::observed() const {
  const std::uint64_t both = header().observed.load();
  return {static_cast<std::uint32_t>(both >> 32), static_cast<std::int32_t>(both & 0xffffffff)};
}

void PhaseTable::show_observed(int row) {
  // Two ranks of the node may speak at once.
  std::uint64_t before = header().observed.load();
  while (!header().observed.compare_exchange_weak(before, ((before >> 32) + 1) << 32 | static_cast<std::uint32_t>(row)))
    continue;
}

PhaseTable::Questions PhaseTable::questions() const {
  return questions_in(header().questions.load());
}

void PhaseTable::ask() {
  change(header().questions, [](Questions now) {
    return Questions{now.asked + (now.is_open() ? 0 : 1), now.answered};
  });
}

bool PhaseTable::answer() {
  return change(header().questions, [](Questions now) { return Questions{now.asked, now.asked}; });
}

void PhaseTable::note(const Questions& questions) {
  change(header().questions, [&](Questions now) {
    return Questions{std::max(now.asked, questions.asked), std::max(now.answered, questions.answered)};
  });
}

namespace {

std::string_view name_of_work(Phase phase) {
  switch (phase) {
    case Phase::alone: return "working alone";
    case Phase::device: return "waiting for its GPU";
    case Phase::absent:
    case Phase::computing:
    case Phase::meeting:
    case Phase::leaving: break;
  }
  return "computing";
}

}  // namespace

std::string place_of(const PhaseTable::Snapshot& row) {
  const Position& position = row.position;
  const std::string run = name_of_run(position.kind, position.step);
  const bool meets = row.phase == Phase::meeting;
  if (meets && row.last.kind == TagKind::close) return fmt::format("at the end of {}, waiting for the others", run);
  const std::string where = describe(position.where, position.kind, position.step);
  if (meets) return fmt::format("{}, waiting at {}", where, describe(row.last));
  const std::string_view doing = name_of_work(row.phase);
  if (row.group == position.group && row.met_last() > position.since && is_call(row.last.kind))
    return fmt::format("{}, {} after {}", where, doing, describe(row.last));
  const std::string_view site{position.site, ::strnlen(position.site, sizeof position.site)};
  return fmt::format("{}, {}{}", where, doing, site.empty() ? "" : fmt::format(" ({})", site));
}

std::string describe(const PhaseTable::Snapshot& row) {
  if (row.phase == Phase::absent) return "has not started";
  if (row.phase == Phase::leaving) return "was leaving the job";
  return "was " + place_of(row);
}

std::string late_sentence(std::string_view name, const Tag& waited, double seconds, const PhaseTable::Snapshot& row,
                          std::string_view more) {
  return fmt::format(
      "{} is late: {} was waited for {:g} s; it runs, and {}{}; work that only one rank does is announced by "
      "working_alone()",
      name, describe(waited), seconds, describe(row), more);
}

}  // namespace lockstep
