// Which piece of work comes before which, for checks of memory.
#pragma once

#include <cstdint>
#include <string>

#include "runtime/world.hpp"

namespace cusim {

/// Gives a piece its number. `what` is for messages. Locked.
std::uint32_t enter_piece(unsigned lane, std::uint32_t place, const std::string& what);

/// What comes before the piece that this thread runs; null outside of one.
const Clock* clock_of_current();

}  // namespace cusim
