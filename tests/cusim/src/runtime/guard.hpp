// The arena's pages, closed to the host except while a piece of work touches them.
#pragma once

#include <cstddef>

#include "core.hpp"

namespace cusim {

/// Reserves the arena and what lies beside it, once.
void reserve_arena();

/// The arena is used up to here: these pages are opened and closed.
void use_up_to(std::byte* end);

/// As long as it lives, GPU memory that a piece of work has opened stays open: opening and closing is dear.
class [[nodiscard]] OpenForLong {
 public:
  OpenForLong();
  OpenForLong(const OpenForLong&) = delete;
  OpenForLong& operator=(const OpenForLong&) = delete;
  ~OpenForLong();
};

/// Closes what only an OpenForLong holds open: a function of the host is about to run.
void close_for_host();

}  // namespace cusim
