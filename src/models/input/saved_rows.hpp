// Rows in a block of data.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "models/input/data_block.hpp"
#include "models/input/number_rows.hpp"

namespace lockstep {

/// Adds rows to the block, once however often it is called. Returns their number in it.
std::size_t save_rows(const std::shared_ptr<const NumberRows>& rows, BlockWriter& block);

/// All rows of the block, in the order of their numbers. ConfigError if a file from which they are read is not there
/// any more, or is another.
std::vector<std::shared_ptr<const NumberRows>> restore_rows(const BlockReader& block);

}  // namespace lockstep
