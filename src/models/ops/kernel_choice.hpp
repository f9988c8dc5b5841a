// The names of the kernels.
#pragma once

#include <string_view>

#include <lockstep/models/ops/kernels.hpp>

namespace lockstep::ops {

/// Parses "auto", "reference", "onednn" or "cuda". ConfigError, listing them, for anything else.
Kernels::Choice parse_kernel_choice(std::string_view name);

}  // namespace lockstep::ops
