// A phase table: the test's own row, and others for ranks that it forks.
#pragma once

#include <chrono>
#include <functional>
#include <stdexcept>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <unistd.h>

#include "core/control/phase_table.hpp"
#include "core/control/tag.hpp"
#include "support/child_process.hpp"

namespace lockstep::test {

inline Tag merge_tag() {
  Tag tag;
  tag.kind = TagKind::merge;
  tag.count = 5;
  std::string_view{"trainer.cpp:120"}.copy(tag.site, Tag::site_capacity);
  return tag;
}

/// A table of which this process writes row 0, and children the others.
struct Table {
  const int row_count;

  SharedMemory memory{SharedMemory::create(PhaseTable::bytes_for(row_count))};
  std::vector<SharedMemory> opened;
  PhaseTable rows;

  explicit Table(int ranks = 3) : row_count{ranks}, rows{own_row()} {}

  PhaseTable own_row() {
    for (int row = 0; row < row_count; ++row)
      opened.push_back(SharedMemory::open(memory.handle(), PhaseTable::bytes_for(row_count)));
    memory.take_over();
    return of(0);
  }

  /// For the process that writes `row`: once in each.
  PhaseTable of(int row, PhaseTable::Processes processes = PhaseTable::Processes::known) {
    return PhaseTable{std::move(opened[static_cast<std::size_t>(row)]), row_count, row, processes};
  }

  bool has_started(int row) const {
    return eventually([&] { return rows.read(row).phase != Phase::absent; });
  }
  bool has_beaten(int row) const {
    return eventually([&] { return rows.read(row).heartbeat > 0; });
  }
};

/// A process that has started and writes a row of the table. It does what `body` says, or waits for signals.
class ChildRank : public ChildProcess {
 public:
  using Body = std::function<int(PhaseTable&)>;

  ChildRank(
      Table& table, int row, const Body& body = [](PhaseTable&) { return ::pause(); },
      PhaseTable::Processes processes = PhaseTable::Processes::known)
      : ChildProcess{[&] {
          PhaseTable own = table.of(row, processes);
          return body(own);
        }} {
    if (!table.has_started(row)) throw std::runtime_error{"a rank did not start"};
  }
};

/// What a rank does that computes.
[[noreturn]] inline int beat_for_ever(PhaseTable& table) {
  while (true) {
    table.beat();
    std::this_thread::sleep_for(std::chrono::milliseconds{5});
  }
}

}  // namespace lockstep::test
