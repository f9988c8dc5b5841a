// What each rank of the job is doing, in memory that all ranks of a node see. A row is written by its rank's main
// thread and watchdog, one of another node by whoever hears that rank's heartbeats; the watchdogs of the node read them
// all.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include <lockstep/control/tag.hpp>

namespace lockstep {

enum class Phase : std::uint32_t {
  absent,     ///< not there yet
  computing,  ///< on its own: replica code, or a data collective that all have agreed on
  meeting,    ///< waiting for the others in an agreement
  alone,      ///< work that only this rank does and the others wait for (a checkpoint, an evaluation)
  leaving,    ///< ending; its process may go
};

/// Memory that other processes of the node can map. It has no name when the job runs, so nothing is left behind however
/// that ends.
class SharedMemory {
 public:
  /// How another process finds it.
  struct Handle {
    enum class Way : std::int32_t {
      none,
      descriptor,  ///< a descriptor of the creator, for as long as that keeps it
      name,        ///< a POSIX shared memory object, until the creator unlinks it
    };
    Way way = Way::none;
    std::int32_t process = 0;
    std::int32_t descriptor = -1;
    char name[32] = {};
    std::uint64_t proof = 0;  ///< what the memory holds when it is handed over: the right memory, not another's
  };

  /// Zeroed but for the proof, which `take_over` removes. CommError where the system refuses.
  static SharedMemory create(std::size_t bytes);

  /// The same for where processes may not look into each other: found by a name that must be unlinked.
  static SharedMemory create_named(std::size_t bytes);

  /// CommError where the system refuses, or finds something else there.
  static SharedMemory open(const Handle& handle, std::size_t bytes);

  SharedMemory(SharedMemory&& other) noexcept;
  SharedMemory& operator=(SharedMemory&& other) noexcept;
  ~SharedMemory();

  const Handle& handle() const { return handle_; }
  void* data() const { return data_; }

  /// By the creator, when everyone has opened it: no name and no proof any more.
  void take_over();

 private:
  SharedMemory(int descriptor, std::size_t bytes);
  void set_proof();

  int descriptor_ = -1;
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
  Handle handle_;
};

/// One row for each rank, those of other nodes too; where nothing is known of a rank, its row is absent. Every field is
/// an atomic of its own: a reader may see half an update, never a torn word.
class PhaseTable {
 public:
  /// What a reader finds in a row.
  struct Snapshot {
    Phase phase = Phase::absent;
    std::int32_t process = 0;  ///< 0 where it is not known, or not of this node
    bool terminated = false;   ///< SIGTERM is about to end it
    std::uint64_t heartbeat = 0;
    std::uint64_t meeting = 0;  ///< agreements entered so far
    Tag last;                   ///< kind, sequence, depth and site of the last of them
  };

  static std::size_t bytes_for(int rows);

  /// Whether the ranks of the node see each other under their own process numbers.
  enum class Processes { known, unknown };

  /// Over memory of `bytes_for(rows)` bytes that began as zeros. This process writes `row`.
  PhaseTable(SharedMemory memory, int rows, int row, Processes processes = Processes::known);

  int rows() const { return rows_; }
  int row() const { return row_; }

  void enter(Phase phase);
  void enter_meeting(std::uint64_t meeting, const Tag& tag);
  void leave_meeting() { enter(Phase::computing); }
  void beat();

  /// This process was told to end, and does. A word of its own: the main thread may still enter phases.
  void set_terminated();

  Snapshot read(int row) const;

  /// What came from another node about a rank there. Its process is not known here.
  void write(int row, const Snapshot& seen);

  /// True for the first caller on the node: whoever gets it prints.
  bool claim_report();

  /// Whether someone has claimed it.
  bool reported() const;

  /// Counts the ranks of the node for which MPI has ended.
  void count_finished();
  int finished() const;

 private:
  struct Row;
  struct Header;
  Header& header() const;
  Row& row_at(int row) const;

  SharedMemory memory_;
  int rows_;
  int row_;
};

/// "was computing after merge_call #5 (trainer.cpp:120)": what a row says its rank was doing.
std::string describe(const PhaseTable::Snapshot& row);

}  // namespace lockstep
