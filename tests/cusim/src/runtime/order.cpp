// Races between pieces of work: two that touch the same bytes, of which one writes, must be ordered by their stream, by
// events or by the host.
#include "runtime/order.hpp"

#include <algorithm>
#include <deque>
#include <mutex>
#include <set>

#include <fmt/format.h>

#include "memory.hpp"

namespace cusim {
namespace {

struct Entered {
  unsigned lane = 0;
  std::uint32_t place = 0;
  const std::string* what = nullptr;
};

/// All pieces there ever were.
struct Book {
  std::mutex mutex;
  std::deque<Entered> pieces;  ///< from number 1
  std::set<std::string> names;
};

Book& book() {
  static Book* const all = new Book;
  return *all;
}

Entered entered(std::uint32_t number) {
  const std::lock_guard lock{book().mutex};
  return book().pieces.at(number - 1);
}

[[noreturn]] void race(const void* address, std::string_view verb, std::string_view who, std::string_view earlier_verb,
                       std::uint32_t earlier) {
  found(
      fmt::format("{} {} {} without being ordered after {}, which {} it: no stream, event or wait of the host says "
                  "which comes first",
                  who, verb, memory::describe(address), *entered(earlier).what, earlier_verb));
}

/// The answers of is_ordered for the pieces asked last: neighbouring cells are mostly of one piece.
struct Ordered {
  explicit Ordered(std::uint32_t piece) : own{piece} {}
  bool operator()(std::uint32_t earlier) {
    if (earlier == 0 || earlier == own || earlier == known) return true;
    if (!memory::is_ordered(earlier, own)) return false;
    known = earlier;
    return true;
  }
  std::uint32_t own;
  std::uint32_t known = 0;
};

/// The cells that lie wholly in the bytes: an odd byte at an end is its neighbour's as well.
struct Cells {
  Cells(const void* address, std::size_t bytes)
      : begin{(memory::index_of(address) + 1) / 2}, end{(memory::index_of(address) + bytes) / 2} {}
  std::size_t begin;
  std::size_t end;
};

const void* address_of(std::size_t cell) {
  return memory::arena.begin + 2 * cell;
}

}  // namespace

void join(Clock& clock, const Clock& other) {
  if (clock.size() < other.size()) clock.resize(other.size());
  for (std::size_t lane = 0; lane < other.size(); ++lane) clock[lane] = std::max(clock[lane], other[lane]);
}

std::uint32_t enter_piece(unsigned lane, std::uint32_t place, const std::string& what) {
  const std::lock_guard lock{book().mutex};
  const std::string* const name = &*book().names.insert(what).first;
  book().pieces.push_back({lane, place, name});
  return static_cast<std::uint32_t>(book().pieces.size());
}

bool memory::is_ordered(std::uint32_t earlier, std::uint32_t later) {
  if (earlier == 0 || earlier == later) return true;
  const Clock* const clock = clock_of_current();
  if (!clock || later != current_piece()) return true;
  const Entered piece = entered(earlier);
  return piece.lane < clock->size() && (*clock)[piece.lane] >= piece.place;
}

void memory::note_read(const void* address, std::size_t bytes, std::uint32_t piece, std::string_view who) {
  if (piece == 0) return;
  Ordered is_before{piece};
  const Cells cells{address, bytes};
  for (std::size_t cell = cells.begin; cell < cells.end; ++cell) {
    if (!is_before(arena.writers[cell])) race(address_of(cell), "reads", who, "writes", arena.writers[cell]);
    arena.readers[cell] = piece;
  }
}

void memory::note_write(const void* address, std::size_t bytes, std::uint32_t piece, std::string_view who) {
  if (piece == 0) return;
  Ordered is_before{piece};
  Ordered is_read_before{piece};
  const Cells cells{address, bytes};
  for (std::size_t cell = cells.begin; cell < cells.end; ++cell) {
    if (!is_before(arena.writers[cell])) race(address_of(cell), "writes", who, "writes", arena.writers[cell]);
    if (!is_read_before(arena.readers[cell])) race(address_of(cell), "writes", who, "reads", arena.readers[cell]);
    arena.writers[cell] = piece;
    arena.readers[cell] = 0;
  }
}

}  // namespace cusim
