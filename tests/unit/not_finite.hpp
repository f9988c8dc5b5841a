// Numbers that are not finite, short enough for a table.
#pragma once

#include <limits>

namespace lockstep::test {

inline constexpr double nan_value = std::numeric_limits<double>::quiet_NaN();
inline constexpr double infinity = std::numeric_limits<double>::infinity();

}  // namespace lockstep::test
