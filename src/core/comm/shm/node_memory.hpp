// How the ranks of one node reach each other's tensors: memory that all of them map, and fences in it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/comm/communicator.hpp"
#include "core/device/shared_memory.hpp"

namespace lockstep {

/// The memory that the ranks of a group share, all on one node. It moves nothing by itself: a rank reads and writes
/// what the others have in it, and `exchange` says when. Methods are COLL or LOCAL; none is thread-safe.
///
/// A rank that waits in `exchange` does not look for failures. Its watchdog does, and ends the process if another rank
/// is gone or has stopped.
class NodeMemory {
 public:
  /// What each rank can lay down for the others in one exchange.
  static constexpr std::size_t slot_bytes = std::size_t{256} << 10;

  /// The memory that `ranks` of them need for their slots.
  static std::size_t bytes_for(int ranks);

  /// COLL, blocking. `slots` is memory of `bytes_for(ranks)` bytes that started as zeros, and that every rank has
  /// mapped. `create` makes more memory that all of them can open (SharedMemory::create or create_named).
  NodeMemory(SharedMemory slots, int rank, int ranks, SharedMemory (*create)(std::size_t) = SharedMemory::create);
  ~NodeMemory();

  int rank() const { return rank_; }
  int size() const { return ranks_; }

  /// Whether every rank can have a core of its own, the same on all ranks. If not, those that wait yield at once.
  bool has_enough_cores() const { return spins_ > 0; }

  /// LOCAL. `slot_bytes` bytes, aligned to 16, that the others see after the next exchange. This rank may write them
  /// from the end of one exchange to the beginning of the next.
  std::byte* slot() const { return payload(next_, rank_); }

  /// COLL, blocking: a fence. When it returns, every rank has called it, and what each wrote before, here or in memory
  /// of `allocate`, is visible to all. Returns whether all ranks brought the same `word`.
  bool exchange(std::uint64_t word = 0);

  /// LOCAL. The slot of rank 0 in the last exchange; those of the others follow at equal strides. Any rank may read and
  /// write them until its next exchange, if the ranks do not write what another one reads.
  std::byte* slots() const { return payload(next_ - 1, 0); }
  static std::int64_t slot_stride();

  // Tasks without fences. They are numbered from 1. Each rank begins and ends them in this order, at its own pace. What
  // it wrote before is visible to those that see from here that it has begun or ended a task. Another thread than that
  // of the exchanges may use them.

  /// LOCAL. Whether this rank may begin `task`: not before all ranks have ended the one of 64 tasks ago.
  bool may_begin(std::uint64_t task) const;

  /// LOCAL. Tells the others that this rank has begun `task`, with a word for it.
  void begin(std::uint64_t task, std::uint64_t word);

  /// LOCAL. Whether all ranks have begun `task`, which this rank has not ended, and with the same word.
  enum class Begun : std::uint8_t { not_by_all, with_one_word, with_several };
  Begun begun(std::uint64_t task) const;

  /// LOCAL. Tells the others that this rank has ended `task`: it may no longer ask with which words it was begun.
  void end(std::uint64_t task);

  /// LOCAL. Whether all ranks have ended `task`.
  bool ended(std::uint64_t task) const;

  /// What each rank can lay down for the others in a task, and in how many tasks at a time.
  static constexpr std::size_t room_bytes = std::size_t{64} << 10;
  static constexpr std::uint64_t rooms = 4;

  /// LOCAL. Whether the rooms of `task` are free: all ranks have ended the one that had them before. Only this rank
  /// knows whether it still reads there what others wrote.
  bool has_room(std::uint64_t task) const { return task <= rooms || ended(task - rooms); }

  /// LOCAL. The room of rank 0 for `task`; those of the others follow at equal strides. `room_bytes` bytes, aligned to
  /// a cache line.
  std::byte* rooms_of(std::uint64_t task) const;
  static std::int64_t stride_of_rooms();

  /// COLL, blocking. Memory of which every rank has `bytes` bytes, all in one mapping at equal strides. Zeroed,
  /// reserved, and the result's own: it may outlive this object.
  SharedAllocation allocate(std::size_t bytes);

  /// Where a rank's tensor and those at the same place on the other ranks lie.
  struct Place {
    std::uint64_t word;  ///< never 0, and equal on two ranks exactly if their tensors lie at the same place
    std::byte* first;    ///< the tensor of rank 0
    std::int64_t stride;
  };

  /// LOCAL. Nothing if not all of the `bytes` bytes are this rank's memory from one `allocate`.
  std::optional<Place> place_of(const std::byte* data, std::size_t bytes) const;

 private:
  struct Slot;
  struct Tasks;
  struct Segment;

  Slot& slot_at(std::uint64_t exchange, int rank) const;
  std::byte* payload(std::uint64_t exchange, int rank) const;
  Tasks& tasks_of(int rank) const;
  int count_cores() const;

  SharedMemory slots_;
  int rank_;
  int ranks_;
  SharedMemory (*create_)(std::size_t);
  int spins_ = 0;           ///< how often a rank looks for another before it yields
  std::uint64_t next_ = 1;  ///< the number of the next exchange
  std::uint64_t allocations_ = 0;
  std::shared_ptr<std::vector<Segment>> segments_;  ///< in use; shared with the buffers that lie in them
};

}  // namespace lockstep
