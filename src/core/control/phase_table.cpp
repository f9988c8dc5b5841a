#include "core/control/phase_table.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <map>
#include <mutex>
#include <thread>
#include <type_traits>
#include <utility>

#include <fmt/format.h>
#include <unistd.h>

namespace lockstep {
namespace {

constexpr std::uint32_t claimed = 1, claimed_with = 2;

using Word = std::atomic<std::uint64_t>;
static_assert(Word::is_always_lock_free, "a lock would not work between processes");

template <class T>
constexpr std::size_t words_in = sizeof(T) / sizeof(Word);

/// The words of a value, as they are in shared memory.
template <class T>
auto words_of(const T& value) {
  static_assert(std::has_unique_object_representations_v<T>, "padding would carry other memory of the process");
  return std::bit_cast<std::array<std::uint64_t, words_in<T>>>(value);
}

/// Whether `next`, called with the value as it is, changes it.
template <class Value, class Next>
bool change(std::atomic<Value>& shared, Next&& next) {
  static_assert(std::atomic<Value>::is_always_lock_free);
  Value before = shared.load();
  while (true) {
    const Value after = next(before);
    if (after == before) return false;
    if (shared.compare_exchange_weak(before, after)) return true;
  }
}

/// A number that is kept as one more; 0 stands for none.
std::optional<int> noted_in(int number) {
  return number == 0 ? std::nullopt : std::optional{number - 1};
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
  std::atomic<Observed> observed;
  std::atomic<Questions> questions;
  std::atomic<std::uint32_t> wishes;
  std::atomic<int> lost;  ///< 1 and the row; 0 if none is known
  std::atomic<Speaker> speaker;
};

struct alignas(128) PhaseTable::Row {
  std::array<Word, words_in<Snapshot>> words;
  Word observed;  ///< its meetings when the rank was said to stall, and 1

  /// The first word of a member of Snapshot.
  template <class Member>
  Word* at(Member Snapshot::*member) {
    static constexpr Snapshot none;
    const auto* const first = reinterpret_cast<const std::byte*>(&none);
    return &words[static_cast<std::size_t>(reinterpret_cast<const std::byte*>(&(none.*member)) - first) / sizeof(Word)];
  }
  template <class Member>
  void set(Member Snapshot::*member, const Member& value, std::memory_order order = std::memory_order_relaxed) {
    Word* word = at(member);
    for (const std::uint64_t each : words_of(value)) (word++)->store(each, order);
  }
  std::uint64_t get(std::uint64_t Snapshot::*member) { return at(member)->load(std::memory_order_relaxed); }

  /// The words of a group that is shown, its key and its number; null if it is not. Unused ones have the key 0.
  Word* group_at(std::uint64_t key) {
    Word* const first = at(&Snapshot::groups);
    for (Word* each = first; each != first + words_in<decltype(Snapshot::groups)>; each += words_in<Met>)
      if (each->load() == key) return each;
    return nullptr;
  }

  /// Shows the group, if there is room.
  bool show(std::uint64_t key) {
    Word* const unused = group_at(0);
    if (!unused) return false;
    unused[1].store(0);
    unused[0].store(key);
    return true;
  }

  /// Where the number of the group stands; null if it is not shown.
  Word* number_of(std::uint64_t key) {
    if (key == 0) return at(&Snapshot::meeting);
    Word* const shown = group_at(key);
    return shown ? shown + 1 : nullptr;
  }
  void set_last(const TagName& tag, std::uint64_t key) {
    set(&Snapshot::last, tag);
    set(&Snapshot::group, key);
  }
};

std::size_t PhaseTable::bytes_for(int rows) {
  return sizeof(Header) + sizeof(Row) * static_cast<std::size_t>(rows);
}

PhaseTable::PhaseTable(SharedMemory memory, int rows, int row, Processes processes)
    : memory_{std::make_shared<SharedMemory>(std::move(memory))},
      rows_{rows},
      row_{row},
      open_{std::make_shared<OpenGroups>()} {
  const std::int32_t number = ::getpid();
  own().set(&Snapshot::process, ProcessNumbers{processes == Processes::known ? number : 0, number});
  enter(Phase::computing);
}

PhaseTable::PhaseTable(const PhaseTable& neighbour, int row)
    : memory_{neighbour.memory_}, rows_{neighbour.rows_}, row_{row}, open_{std::make_shared<OpenGroups>()} {
  enter(Phase::computing);
}

PhaseTable::Header& PhaseTable::header() const {
  return *static_cast<Header*>(memory_->data());
}

PhaseTable::Row& PhaseTable::row_at(int row) const {
  return reinterpret_cast<Row*>(static_cast<std::byte*>(memory_->data()) + sizeof(Header))[row];
}

void PhaseTable::enter(Phase phase) {
  const auto lock = open_->lock_row();
  show(phase);
}

void PhaseTable::show(Phase phase) {
  own().set(&Snapshot::phase, phase, std::memory_order_release);
}

Phase PhaseTable::phase() const {
  return static_cast<Phase>(own().at(&Snapshot::phase)->load(std::memory_order_relaxed));
}

void PhaseTable::enter_meeting(std::uint64_t meeting, const Tag& tag, std::uint64_t group) {
  const auto lock = open_->lock_row();
  Row& row = own();
  // Groups that were shown may have gone.
  if (!row.number_of(group) && row.show(group)) row.at(&Snapshot::groups_not_shown)->fetch_sub(1);
  row.set_last(tag, group);
  Word* const number = row.number_of(group);
  if (number) raise(*number, meeting);
  // A wait for a GPU may be for something earlier.
  row.set(&Snapshot::waits_at, number && number->load() > meeting ? meeting : std::uint64_t{0});
  row.set(&Snapshot::meetings, row.get(&Snapshot::meetings) + 1);
  show(Phase::meeting);
}

void PhaseTable::leave_meeting(std::uint64_t group) {
  if (group == 0) {
    const std::uint64_t behind = own().get(&Snapshot::waits_at);
    own().set(&Snapshot::passed, behind != 0 ? behind : own().get(&Snapshot::meeting));
  }
  const auto lock = open_->lock_row();
  show(Phase::computing);
}

void PhaseTable::come_to(std::uint64_t meeting, std::uint64_t group) {
  open_->has_started = true;
  if (Word* const number = own().number_of(group)) raise(*number, meeting);
}

void PhaseTable::show_wait(std::uint64_t meeting, const Tag& tag, std::uint64_t group) {
  come_to(meeting, group);
  const std::scoped_lock lock{open_->row};
  const bool is_alone = phase() == Phase::alone && std::this_thread::get_id() == open_->owner;
  if (phase() != Phase::computing && !is_alone) return;
  own().set_last(tag, group);
  own().set(&Snapshot::waits_at, meeting);
  own().at(&Snapshot::meetings)->fetch_add(1);
  open_->hides_alone = is_alone;
  show(Phase::meeting);
}

void PhaseTable::hide_wait(std::uint64_t meeting, std::uint64_t group) {
  const std::scoped_lock lock{open_->row};
  Row& row = own();
  if (phase() != Phase::meeting || row.get(&Snapshot::group) != group || row.get(&Snapshot::waits_at) != meeting)
    return;
  row.set(&Snapshot::waits_at, std::uint64_t{0});
  show(std::exchange(open_->hides_alone, false) ? Phase::alone : Phase::computing);
}

void PhaseTable::open_group(const Members& members) {
  {
    const std::scoped_lock lock{open_->mutex};
    open_->members[members.key] = members.ranks;
  }
  if (!own().show(members.key)) own().at(&Snapshot::groups_not_shown)->fetch_add(1);
}

void PhaseTable::close_group(std::uint64_t group) {
  {
    const std::scoped_lock lock{open_->mutex};
    open_->members.erase(group);
  }
  if (own().get(&Snapshot::group) == group) own().set(&Snapshot::group, std::uint64_t{0});
  if (Word* const shown = own().group_at(group))
    shown->store(0);
  else
    own().at(&Snapshot::groups_not_shown)->fetch_sub(1);
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
  return groups_not_shown > 0 ? std::nullopt : std::optional<std::uint64_t>{0};
}

void PhaseTable::move_to(const Position& position) {
  own().set(&Snapshot::position, position);
}

void PhaseTable::beat() {
  own().at(&Snapshot::heartbeat)->fetch_add(1, std::memory_order_relaxed);
}

void PhaseTable::set_terminated() {
  own().set(&Snapshot::terminated, std::uint64_t{1}, std::memory_order_release);
}

std::atomic<std::uint64_t>& PhaseTable::ending_signal() const {
  return *own().at(&Snapshot::ended_by);
}

void PhaseTable::set_memory(const MemoryUse& memory) {
  const auto in_kib = [](std::uint64_t bytes) { return static_cast<std::uint32_t>(bytes >> 10); };
  own().set(&Snapshot::memory, Memory{in_kib(memory.resident), in_kib(memory.peak)});
}

void PhaseTable::set_progress(std::uint64_t progress) {
  own().set(&Snapshot::progress, progress);
}

std::uint64_t PhaseTable::progress() const {
  std::uint64_t all = 0;
  for (int row = 0; row < rows_; ++row) all += row_at(row).get(&Snapshot::progress);
  return all;
}

void PhaseTable::set_stack_kept(std::uint64_t meetings) {
  own().set(&Snapshot::stack, meetings + 1);
}

PhaseTable::Snapshot PhaseTable::read(int row) const {
  std::array<std::uint64_t, words_in<Snapshot>> words;
  std::ranges::transform(row_at(row).words, words.begin(),
                         [](const Word& word) { return word.load(std::memory_order_acquire); });
  return std::bit_cast<Snapshot>(words);
}

void PhaseTable::write(int row, const Snapshot& seen) {
  const auto words = words_of(seen);
  // The heartbeat last.
  for (std::size_t i = words.size(); i-- > 0;) row_at(row).words[i].store(words[i], std::memory_order_release);
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
  return row_at(row).observed.load() == row_at(row).get(&Snapshot::meetings) + 1;
}

bool PhaseTable::observe(int row) {
  const std::uint64_t next = row_at(row).get(&Snapshot::meetings) + 1;
  return row_at(row).observed.exchange(next) != next;
}

PhaseTable::Observed PhaseTable::observed() const {
  return header().observed;
}

void PhaseTable::show_observed(int row) {
  change(header().observed, [row](Observed now) { return Observed{now.count + 1, row}; });
}

PhaseTable::Questions PhaseTable::questions() const {
  return header().questions;
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

std::uint32_t PhaseTable::wishes() const {
  return header().wishes;
}

void PhaseTable::wish(std::uint32_t after) {
  (void)header().wishes.compare_exchange_strong(after, after + 1);
}

void PhaseTable::note_wishes(std::uint32_t wishes) {
  change(header().wishes, [=](std::uint32_t now) { return std::max(now, wishes); });
}

PhaseTable::Speaker PhaseTable::speaker() const {
  return header().speaker;
}

void PhaseTable::note_speaker(Speaker speaker) {
  change(header().speaker, [speaker](Speaker now) {
    if (speaker.node == 0 || now.node == 0) return speaker.node == 0 ? now : speaker;
    // The numbers of rounds begin anew after the last.
    const auto later = static_cast<std::int16_t>(speaker.round - now.round);
    return later > 0 || (later == 0 && speaker.node < now.node) ? speaker : now;
  });
}

std::optional<int> PhaseTable::lost() const {
  return noted_in(header().lost);
}

void PhaseTable::note_lost(int row) {
  int none = 0;
  (void)header().lost.compare_exchange_strong(none, row + 1);
}

std::string place_of(const PhaseTable::Snapshot& row) {
  const Position& position = row.position;
  const std::string run = name_of_run(position.kind, position.step);
  const bool meets = row.phase == Phase::meeting;
  if (meets && row.last.kind == TagKind::close) return fmt::format("at the end of {}, waiting for the others", run);
  const std::string_view site{position.site, ::strnlen(position.site, sizeof position.site)};
  const bool in_phase = position.where == Position::Where::in_phase;
  std::string where = describe(position.where, position.kind, position.step);
  if (in_phase && !site.empty()) where = fmt::format("in '{}'", site);
  if (!where.empty()) where += ", ";
  if (meets) return fmt::format("{}waiting at {}", where, describe(row.last));
  const std::string_view doing = row.phase == Phase::alone    ? "working alone"
                                 : row.phase == Phase::device ? "waiting for its GPU"
                                                              : "computing";
  if (row.group == position.group && row.met_last() > position.since && is_call(row.last.kind))
    return fmt::format("{}{} after {}", where, doing, describe(row.last));
  return fmt::format("{}{}{}", where, doing, in_phase ? std::string{} : bracketed(site));
}

std::string describe(const PhaseTable::Snapshot& row) {
  if (row.phase == Phase::absent) return "has not started";
  if (row.phase == Phase::leaving) return "was leaving the job";
  return "was " + place_of(row);
}

std::string late_sentence(std::string_view name, const TagName& waited, double seconds, const PhaseTable::Snapshot& row,
                          std::string_view more) {
  return fmt::format(
      "{} is late: {} was waited for {:g} s; it runs, and {}{}; work that only one rank does is announced by "
      "working_alone() in C++ and Python, or needs a longer stall timeout",
      name, describe(waited), seconds, describe(row), more);
}

}  // namespace lockstep
