// A phase table of three rows: the test's own and two for processes that it forks.
#pragma once

#include <string_view>
#include <utility>
#include <vector>

#include "control/phase_table.hpp"
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
  static constexpr int row_count = 3;

  SharedMemory memory = SharedMemory::create(PhaseTable::bytes_for(row_count));
  std::vector<SharedMemory> opened;
  PhaseTable rows;

  Table() : rows{own_row()} {}

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
};

}  // namespace lockstep::test
