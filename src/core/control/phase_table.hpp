// What each rank of the job is doing, in memory that all ranks of a node share. A rank writes its own row, and those of
// the ranks of other nodes whose heartbeats it hears. The node's watchdogs read all rows.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/memory_use.hpp"
#include "core/control/members.hpp"
#include "core/control/tag.hpp"
#include "core/device/shared_memory.hpp"

namespace lockstep {

enum class Phase : std::uint64_t {
  absent,     ///< not there yet
  computing,  ///< on its own: in replica code, or in a data collective that all have agreed on
  meeting,    ///< waiting for the others in an agreement
  alone,      ///< doing work that only this rank does and the others wait for (a checkpoint, an evaluation)
  leaving,    ///< ending; its process may go
  device,     ///< on its own, waiting for the work of its own GPU. The last: messages are checked against it
};

/// Raises `shared` to `number`, unless it is higher.
inline void raise(std::atomic<std::uint64_t>& shared, std::uint64_t number) {
  std::uint64_t before = shared.load();
  while (before < number && !shared.compare_exchange_weak(before, number)) continue;
}

/// One row for each rank, including those of other nodes. The row of a rank of which nothing is known is absent. Every
/// word is a separate atomic: a reader may see half an update, but never a torn word.
class PhaseTable {
 public:
  /// For how many groups, besides that of all ranks, a row has room. In others, no rank is found to be late.
  static constexpr std::size_t groups_shown = 16;

  /// How often a rank has met in a group.
  struct Met {
    std::uint64_t group = 0;   ///< 0 if there is none
    std::uint64_t number = 0;  ///< the highest that the rank has come to
    bool operator==(const Met&) const = default;
  };

  /// The numbers of a process; 0 if unknown.
  struct ProcessNumbers {
    std::int32_t here = 0;   ///< on the reader's host; unknown on others
    std::int32_t there = 0;  ///< on its own host, for people
  };

  /// The memory of a process, in KiB; 0 if unknown.
  struct Memory {
    std::uint32_t resident = 0;
    std::uint32_t peak = 0;
  };

  /// What a reader finds in a row, word by word as it is there.
  struct Snapshot {
    std::uint64_t heartbeat = 0;  ///< the first: whatever is read after it is at least as new
    Phase phase = Phase::absent;
    ProcessNumbers process;
    std::uint64_t terminated = 0;  ///< 1: SIGTERM is about to end the process
    std::uint64_t ended_by = 0;    ///< the signal that ended the process, if it could note that; 0 if none is known
    std::uint64_t meeting = 0;     ///< the highest number of an agreement or a sum of all ranks that it has come to
    std::uint64_t passed = 0;      ///< number of the last one that every rank came to; 0 if unknown, or on another node
    std::uint64_t group = 0;       ///< the key of the group in which it met last; 0 for all ranks
    std::array<Met, groups_shown> groups{};
    std::uint64_t groups_not_shown = 0;
    std::uint64_t waits_at = 0;  ///< the number at which it waits in that group, or waited last, if it has come to
                                 ///< later ones; else 0
    std::uint64_t meetings = 0;  ///< how often it has met, in whichever group
    TagName last;                ///< of the last agreement
    Position position;
    Memory memory;               ///< about a second ago
    std::uint64_t progress = 0;  ///< rises while it does long work piece by piece, see progress_count.hpp
    std::uint64_t stack = 0;     ///< its `meetings` when its watchdog last kept the stack of its main thread, and 1

    /// Whether a stack was kept at the place where it is.
    bool has_stack() const { return stack == meetings + 1; }

    /// The highest number of that group's agreements and sums to which it has come: 0 before the first, empty if
    /// unknown.
    std::optional<std::uint64_t> met_in(std::uint64_t group) const;

    /// Whether it tells of that group.
    bool shows(std::uint64_t group) const;

    /// The number at which it waits, or waited last, in the group in which it met last.
    std::uint64_t met_last() const { return waits_at != 0 ? waits_at : met_in(group).value_or(0); }
  };

  static std::size_t bytes_for(int rows);

  /// Whether the ranks of the node see each other's process numbers.
  enum class Processes { known, unknown };

  /// Uses memory of `bytes_for(rows)` bytes that started as zeros. This process writes `row`.
  PhaseTable(SharedMemory memory, int rows, int row, Processes processes = Processes::known);

  /// The table of a simulated rank that shares a node with another.
  PhaseTable(const PhaseTable& neighbour, int row);

  int rows() const { return rows_; }
  int row() const { return row_; }

  void enter(Phase phase);
  /// `group` is the key of the group that meets; 0 for all ranks.
  void enter_meeting(std::uint64_t meeting, const Tag& tag, std::uint64_t group = 0);
  void leave_meeting(std::uint64_t group = 0);

  // The same for what was started before, from any thread.

  /// This rank has come to `meeting`, but does not wait there.
  void come_to(std::uint64_t meeting, std::uint64_t group);

  /// This rank waits at `meeting`, unless it shows something else than that it computes. On the thread that made this
  /// object, also where it has said that it works alone, until `hide_wait`.
  void show_wait(std::uint64_t meeting, const Tag& tag, std::uint64_t group);

  /// Ends that, if it is what this rank shows.
  void hide_wait(std::uint64_t meeting, std::uint64_t group);

  /// LOCAL. This rank begins or ends to meet in a group of some of the ranks.
  void open_group(const Members& members);
  void close_group(std::uint64_t group);

  /// The ranks of a group that is open here; none if it is not.
  std::vector<int> members_of(std::uint64_t group) const;

  /// That of this process.
  Phase phase() const;

  void move_to(const Position& position);
  void beat();

  /// Says that this process was told to end, and will. The main thread may still enter phases.
  void set_terminated();

  /// Where the signal that ends this process is to be noted.
  std::atomic<std::uint64_t>& ending_signal() const;

  void set_memory(const MemoryUse& memory);
  void set_progress(std::uint64_t progress);

  /// Of all ranks together: it rises whenever that of one does.
  std::uint64_t progress() const;

  /// Says that the stack of this process's main thread is kept, taken after so many `meetings` (Snapshot).
  void set_stack_kept(std::uint64_t meetings);

  Snapshot read(int row) const;

  /// Writes what came from another node about a rank there, whose process is not known here.
  void write(int row, const Snapshot& seen);

  /// True for the first caller on the node, which is to print the report and to end the job with `code`, if it knows
  /// that.
  bool claim_report(std::optional<int> code = {});

  /// Whether someone has claimed the report.
  bool reported() const;

  /// With what the job ends as it was reported; `own` if that is not known.
  int code_of_report(int own) const;

  /// True for the first caller on the node, which is to say that heartbeats do not get through, or has heard it.
  bool claim_warning();
  bool warned() const;

  /// Whether someone on the node knows that the rank of that row stalls where it is: before its next meeting.
  bool is_observed(int row) const;

  /// Notes that. True for the first caller on the node.
  bool observe(int row);

  /// The stalls that ranks of this node were the first to speak of: how many, and the row of the last.
  struct Observed {
    std::uint32_t count = 0;
    std::int32_t row = 0;
    bool operator==(const Observed&) const = default;
  };
  Observed observed() const;
  void show_observed(int row);

  /// How often somebody has asked where everyone is (SIGUSR2), and has been answered, as far as this node knows.
  struct Questions {
    std::uint32_t asked = 0;
    std::uint32_t answered = 0;
    bool is_open() const { return asked != answered; }
    bool operator==(const Questions&) const = default;
  };
  Questions questions() const;

  /// Asks, unless a question is open.
  void ask();

  /// True for the first caller on the node, which is to answer the open question.
  bool answer();

  /// Takes note of what another node knows.
  void note(const Questions& questions);

  /// How often a rank of the job wished to see the rows of all ranks, as far as this node knows. After each wish, rows
  /// are passed on between nodes for a while.
  std::uint32_t wishes() const;

  /// Wishes for it, unless somebody has after the wish of that number.
  void wish(std::uint32_t after);

  /// Takes note of what another node knows.
  void note_wishes(std::uint32_t wishes);

  /// The node of which a rank is about to speak of a stall, or to warn. Nodes that want to speak at the same time do so
  /// in one round, in which the lowest counts; a later round is about something else.
  struct Speaker {
    std::uint16_t round = 0;
    std::uint16_t node = 0;  ///< 1 and its number; 0 if none is known
    bool operator==(const Speaker&) const = default;
  };
  Speaker speaker() const;

  /// Takes note of what this or another node knows.
  void note_speaker(Speaker speaker);

  /// The rank that is gone, as somebody of the job has reported; empty if that is not known.
  std::optional<int> lost() const;

  /// Notes that. The first counts.
  void note_lost(int row);

  /// Whether a line of progress is open on the terminal of the job, see open_line.hpp.
  std::atomic<std::uint32_t>& open_line() const;

  /// Counts the ranks of the node on which MPI has ended.
  void count_finished();
  int finished() const;

 private:
  struct Row;
  struct Header;
  struct OpenGroups;
  Header& header() const;
  Row& row_at(int row) const;
  Row& own() const { return row_at(row_); }
  void show(Phase phase);

  std::shared_ptr<SharedMemory> memory_;
  int rows_;
  int row_;
  std::shared_ptr<OpenGroups> open_;  ///< of this process
};

/// What the rank of that row was doing: "was in step 5, computing after merge_call #1 (trainer.cpp:120)".
std::string describe(const PhaseTable::Snapshot& row);

/// The same without the verb, for a rank that has started and has not left: "in step 5, computing".
std::string place_of(const PhaseTable::Snapshot& row);

/// What is said of a rank that runs, but has let the others wait at the agreement `waited`. `more` follows its place.
std::string late_sentence(std::string_view name, const TagName& waited, double seconds, const PhaseTable::Snapshot& row,
                          std::string_view more = {});

}  // namespace lockstep
