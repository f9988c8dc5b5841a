// What each rank of the job is doing, in memory that all ranks of a node share. A rank's main thread and watchdog write
// its row; the row of a rank on another node is written by the rank that hears its heartbeats. The node's watchdogs
// read all rows.
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
  computing,  ///< on its own: in replica code, or in a data collective that all have agreed on
  meeting,    ///< waiting for the others in an agreement
  alone,      ///< doing work that only this rank does and the others wait for (a checkpoint, an evaluation)
  leaving,    ///< ending; its process may go
};

/// Memory that other processes of the node can map. It has no name while the job runs, so nothing is left behind
/// however the job ends.
class SharedMemory {
 public:
  /// How another process finds it.
  struct Handle {
    enum class Way : std::int32_t {
      none,
      descriptor,  ///< a descriptor of the creator, valid while the creator keeps it
      name,        ///< a POSIX shared memory object, valid until the creator unlinks it
    };
    Way way = Way::none;
    std::int32_t process = 0;
    std::int32_t descriptor = -1;
    char name[32] = {};
    std::uint64_t proof = 0;  ///< found in the memory when it is handed over: proves that this is the right memory
  };

  /// Zeroed except for the proof, which `take_over` removes. CommError if the system refuses.
  static SharedMemory create(std::size_t bytes);

  /// The same for processes that may not access each other: found by a name, which `take_over` unlinks.
  static SharedMemory create_named(std::size_t bytes);

  /// CommError if the system refuses, or if the memory is not the one that `handle` names.
  static SharedMemory open(const Handle& handle, std::size_t bytes);

  SharedMemory(SharedMemory&& other) noexcept;
  SharedMemory& operator=(SharedMemory&& other) noexcept;
  ~SharedMemory();

  const Handle& handle() const { return handle_; }
  void* data() const { return data_; }

  /// Called by the creator once everyone has opened the memory: removes name and proof.
  void take_over();

 private:
  SharedMemory(int descriptor, std::size_t bytes);
  void set_proof();

  int descriptor_ = -1;
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
  Handle handle_;
};

/// One row for each rank, including those of other nodes. The row of a rank of which nothing is known is absent. Every
/// field is a separate atomic: a reader may see half an update, but never a torn word.
class PhaseTable {
 public:
  /// What a reader finds in a row.
  struct Snapshot {
    Phase phase = Phase::absent;
    std::int32_t process = 0;  ///< 0 if unknown, or on another node
    bool terminated = false;   ///< SIGTERM is about to end the process
    std::uint64_t heartbeat = 0;
    std::uint64_t meeting = 0;  ///< number of agreements entered so far
    Tag last;                   ///< kind, sequence, depth and site of the last agreement
  };

  static std::size_t bytes_for(int rows);

  /// Whether the ranks of the node see each other's process numbers.
  enum class Processes { known, unknown };

  /// Uses memory of `bytes_for(rows)` bytes that started as zeros. This process writes `row`.
  PhaseTable(SharedMemory memory, int rows, int row, Processes processes = Processes::known);

  int rows() const { return rows_; }
  int row() const { return row_; }

  void enter(Phase phase);
  void enter_meeting(std::uint64_t meeting, const Tag& tag);
  void leave_meeting() { enter(Phase::computing); }
  void beat();

  /// Says that this process was told to end, and will. It has a word of its own, since the main thread may still enter
  /// phases.
  void set_terminated();

  Snapshot read(int row) const;

  /// Writes what came from another node about a rank there, whose process is not known here.
  void write(int row, const Snapshot& seen);

  /// True for the first caller on the node, which is to print the report.
  bool claim_report();

  /// Whether someone has claimed the report.
  bool reported() const;

  /// Counts the ranks of the node on which MPI has ended.
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

/// What the rank of that row was doing: "was computing after merge_call #5 (trainer.cpp:120)".
std::string describe(const PhaseTable::Snapshot& row);

}  // namespace lockstep
