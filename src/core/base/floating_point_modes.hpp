// How a thread rounds, and what it makes of subnormal numbers. Every process starts with the same modes, but a library
// that was compiled with -ffast-math changes them where it is loaded, and a thread begins with those of its parent.
#pragma once

#include <string>

#include "core/base/parts.hpp"

namespace lockstep {

/// The modes of this thread that change results: "results are rounded upward", "subnormal results become 0 (FTZ)",
/// "subnormal operands count as 0 (DAZ)", joined by commas. Empty if they are those with which a process starts.
std::string changed_floating_point_modes();

/// Gives this thread the modes with which a process starts. Which exceptions trap stays as it is.
LOCKSTEP_PARTS_API void reset_floating_point_modes();

/// Resets the modes of this thread for its lifetime, and then restores them.
class StartingFloatingPointModes {
 public:
  StartingFloatingPointModes();
  StartingFloatingPointModes(const StartingFloatingPointModes&) = delete;
  StartingFloatingPointModes& operator=(const StartingFloatingPointModes&) = delete;
  ~StartingFloatingPointModes();

 private:
  unsigned long control_;  ///< the processor's word with the modes
  int rounding_;
};

}  // namespace lockstep
