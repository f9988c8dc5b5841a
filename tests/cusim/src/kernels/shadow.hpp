// Who accessed which bytes since the launch began, so that races show. Two accesses of different threads, of which one
// writes, race unless a barrier of their block, or of their warp, orders them. Atomic operations do not race with each
// other.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace cusim {

enum class Access : std::uint8_t { read, write, atomic };

/// Some accesses, in 64 bits: in which phase, by whom, at what time of the warp. A phase is the time between two
/// barriers of one block; its number is unique in the process.
class Mark {
 public:
  enum class Who : std::uint64_t {
    thread,  ///< one
    warp,    ///< several of one warp; the cell has their lanes
    block,   ///< threads of several warps
    grid,    ///< threads of several blocks
  };

  Mark() = default;
  Mark(std::uint32_t phase, unsigned thread, unsigned time)
      : bits_{static_cast<std::uint64_t>(phase) << 32 | static_cast<std::uint64_t>(time) << time_at | thread} {}

  static constexpr unsigned latest_time = (1u << 18) - 1;

  std::uint32_t phase() const { return static_cast<std::uint32_t>(bits_ >> 32); }
  unsigned thread() const { return bits_ & 0x3ff; }
  unsigned warp() const { return thread() / 32; }
  unsigned lane() const { return thread() % 32; }
  unsigned time() const { return bits_ >> time_at & latest_time; }
  Who who() const { return static_cast<Who>(bits_ >> who_at & 3); }
  bool is_atomic() const { return bits_ & atomic; }
  bool is_split() const { return bits_ & split; }

  Mark by(Who who) const {
    return Mark{(bits_ & ~(std::uint64_t{3} << who_at)) | static_cast<std::uint64_t>(who) << who_at};
  }
  Mark at(unsigned time) const {
    return Mark{(bits_ & ~(std::uint64_t{latest_time} << time_at)) | static_cast<std::uint64_t>(time) << time_at};
  }
  Mark as_atomic() const { return Mark{bits_ | atomic}; }
  Mark as_split() const { return Mark{bits_ | split}; }

  bool operator==(const Mark&) const = default;

 private:
  explicit Mark(std::uint64_t bits) : bits_{bits} {}

  static constexpr int who_at = 10;
  static constexpr std::uint64_t atomic = 1 << 12;
  static constexpr std::uint64_t split = 1 << 13;
  static constexpr int time_at = 14;

  std::uint64_t bits_ = 0;  ///< phase 0: none
};

/// The accesses to four bytes, or to one.
struct Cell {
  Mark writer;
  Mark reader;
  std::uint32_t writer_lanes = 0;
  std::uint32_t reader_lanes = 0;
};

/// What a warp has synchronized in the current phase.
class WarpOrder {
 public:
  /// A new phase: nothing is known.
  void restart() {
    if (time_ == 1) return;
    time_ = 1;
    stamps_.fill(1);
    known_ = {};
  }
  /// A barrier of these lanes.
  void join(std::uint32_t lanes);

  unsigned stamp(unsigned lane) const { return stamps_[lane]; }
  /// Whether what `earlier` did until `time` comes before what `lane` does now.
  bool knows(unsigned lane, unsigned earlier, unsigned time) const { return known_[lane][earlier] >= time; }
  bool is_used_up() const { return time_ + 2 > Mark::latest_time; }

  WarpOrder() { stamps_.fill(1); }

 private:
  unsigned time_ = 1;
  std::array<std::uint32_t, 32> stamps_;
  std::array<std::array<std::uint32_t, 32>, 32> known_{};
};

/// The thread that accesses memory now, and the launch that it belongs to.
struct Accessor {
  Mark me;
  std::uint32_t block = 0;
  const WarpOrder* warp = nullptr;
  std::uint32_t since = 1;                    ///< phases before this one come before the access
  std::uint32_t first_phase = 1;              ///< of the launch
  std::vector<std::uint32_t> block_of_phase;  ///< from first_phase on
};

/// Earlier accesses with which one races, if any.
struct Race {
  const Mark* others = nullptr;
  Access did = Access::read;

  explicit operator bool() const { return others != nullptr; }
};

/// The cells of one range of memory.
class Shadow {
 public:
  /// For `bytes` bytes. The cells take memory only where they are used.
  explicit Shadow(std::size_t bytes);
  Shadow(const Shadow&) = delete;

  /// Notes an access. Returns what it races with, else false.
  Race note(std::size_t index, std::size_t bytes, Access access, const Accessor& by) {
    for (; bytes > 0;) {
      const std::size_t in_cell = index % 4;
      const std::size_t here = 4 - in_cell < bytes ? 4 - in_cell : bytes;
      if (here == 4 && is_first(fours_[index / 4], access, by)) {
        index += 4;
        bytes -= 4;
        continue;
      }
      if (const Race race = here == 4 ? whole(index, access, by) : part(index, here, access, by)) return race;
      index += here;
      bytes -= here;
    }
    return {};
  }

 private:
  /// Notes an access to bytes that nobody has accessed, which is what most are.
  static bool is_first(Cell& cell, Access access, const Accessor& by) {
    if (cell.writer.phase() >= by.since || cell.reader.phase() >= by.since) return false;
    (access == Access::read ? cell.reader : cell.writer) = access == Access::atomic ? by.me.as_atomic() : by.me;
    return true;
  }
  Race whole(std::size_t index, Access access, const Accessor& by);
  Race part(std::size_t index, std::size_t bytes, Access access, const Accessor& by);

  Cell* fours_;
  Cell* ones_;
};

}  // namespace cusim
