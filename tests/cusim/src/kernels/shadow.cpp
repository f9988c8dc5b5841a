#include "kernels/shadow.hpp"

#include <algorithm>

#include <sys/mman.h>

#include "core.hpp"

namespace cusim {
namespace {

Cell* cells(std::size_t count) {
  void* const made =
      mmap(nullptr, count * sizeof(Cell), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (made == MAP_FAILED) found("no address space to note the accesses of kernels in");
  return static_cast<Cell*>(made);
}

/// Whether everything in `mark` comes before the current access.
bool is_ordered(Mark mark, std::uint32_t lanes, const Accessor& now) {
  if (mark.phase() < now.since) return true;
  if (mark.who() == Mark::Who::grid) return false;
  if (mark.phase() != now.me.phase()) return now.block_of_phase[mark.phase() - now.first_phase] == now.block;
  if (mark.who() == Mark::Who::block) return false;
  if (mark.warp() != now.me.warp()) return false;
  if (mark.time() == Mark::latest_time) return true;  // no longer counted
  const unsigned lane = now.me.lane();
  if (mark.who() == Mark::Who::thread) return mark.lane() == lane || now.warp->knows(lane, mark.lane(), mark.time());
  for (unsigned other = 0; other < 32; ++other)
    if (other != lane && lanes >> other & 1 && !now.warp->knows(lane, other, mark.time())) return false;
  return true;
}

/// `mark` and the current access, which it does not come before.
void join(Mark& mark, std::uint32_t& lanes, const Accessor& now) {
  using Who = Mark::Who;
  if (mark.who() == Who::grid) return;
  if (mark.phase() != now.me.phase()) {
    mark = mark.by(Who::grid);
  } else if (mark.who() == Who::block || mark.warp() != now.me.warp()) {
    mark = mark.by(Who::block);
  } else {
    if (mark.who() == Who::thread) lanes = 1u << mark.lane();
    // Who comes before this access comes before all that follows it.
    for (unsigned other = 0; other < 32; ++other)
      if (lanes >> other & 1 && now.warp->knows(now.me.lane(), other, mark.time())) lanes &= ~(1u << other);
    lanes |= 1u << now.me.lane();
    mark = mark.by(Who::warp).at(std::max(mark.time(), now.me.time()));
  }
}

void note_read(Cell& cell, const Accessor& now) {
  if (is_ordered(cell.reader, cell.reader_lanes, now))
    cell.reader = now.me;
  else
    join(cell.reader, cell.reader_lanes, now);
}

Race note_write(Cell& cell, const Accessor& now) {
  if (cell.reader == now.me) cell.reader = {};
  if (!is_ordered(cell.reader, cell.reader_lanes, now)) return {&cell.reader, Access::read};
  cell.writer = now.me;
  cell.reader = {};
  return {};
}

Race note_atomic(Cell& cell, bool is_first, const Accessor& now) {
  if (!is_ordered(cell.reader, cell.reader_lanes, now)) return {&cell.reader, Access::read};
  if (is_first)
    cell.writer = now.me;
  else
    join(cell.writer, cell.writer_lanes, now);
  cell.writer = cell.writer.as_atomic();
  cell.reader = {};
  return {};
}

Race note_in(Cell& cell, Access access, const Accessor& now) {
  if (cell.writer == now.me && (access == Access::write ? cell.reader == Mark{} : cell.reader == now.me)) return {};
  const bool after_writer = is_ordered(cell.writer, cell.writer_lanes, now);
  if (!after_writer && !(access == Access::atomic && cell.writer.is_atomic()))
    return {&cell.writer, cell.writer.is_atomic() ? Access::atomic : Access::write};
  switch (access) {
    case Access::read: note_read(cell, now); return {};
    case Access::write: return note_write(cell, now);
    case Access::atomic: return note_atomic(cell, after_writer, now);
  }
  return {};
}

bool is_split(const Cell& cell, const Accessor& by) {
  return cell.writer.is_split() && cell.writer.phase() >= by.since;
}

}  // namespace

void WarpOrder::join(std::uint32_t lanes) {
  if (is_used_up()) {
    stamps_.fill(Mark::latest_time);
    return;
  }
  const std::uint32_t barrier = ++time_;
  std::array<std::uint32_t, 32> all{};
  for (unsigned lane = 0; lane < 32; ++lane) {
    if (!(lanes >> lane & 1)) continue;
    for (unsigned other = 0; other < 32; ++other) all[other] = std::max(all[other], known_[lane][other]);
    all[lane] = barrier;
  }
  ++time_;
  for (unsigned lane = 0; lane < 32; ++lane) {
    if (!(lanes >> lane & 1)) continue;
    known_[lane] = all;
    stamps_[lane] = time_;
  }
}

Shadow::Shadow(std::size_t bytes) : fours_{cells(bytes / 4 + 1)}, ones_{cells(bytes + 1)} {}

Race Shadow::whole(std::size_t index, Access access, const Accessor& by) {
  Cell& four = fours_[index / 4];
  if (!is_split(four, by)) return note_in(four, access, by);
  return part(index, 4, access, by);
}

Race Shadow::part(std::size_t index, std::size_t bytes, Access access, const Accessor& by) {
  Cell& four = fours_[index / 4];
  if (!is_split(four, by)) {
    // What the four bytes have in common each of them has now by itself.
    std::fill_n(ones_ + index / 4 * 4, 4, four);
    four.writer = by.me.as_split();
    four.reader = {};
  }
  for (; bytes > 0; --bytes, ++index)
    if (const Race race = note_in(ones_[index], access, by)) return race;
  return {};
}

}  // namespace cusim
