// What a layer may apply to its sums.
#pragma once

#include <cstdint>

namespace lockstep::ops {

enum class Activation : std::uint8_t { none, relu };

}  // namespace lockstep::ops
