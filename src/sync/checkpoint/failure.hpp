// Faults of a checkpoint, each in one line.
#pragma once

#include <string_view>

#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>

#include "core/control/tag.hpp"

namespace lockstep {

/// Throws CheckpointError "checkpoint PATH: WHAT".
[[noreturn]] inline void fail_checkpoint(std::string_view path, std::string_view what) {
  throw CheckpointError{one_line(fmt::format("checkpoint {}: {}", path, what))};
}

}  // namespace lockstep
