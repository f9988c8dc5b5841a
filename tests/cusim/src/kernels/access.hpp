// Checks of what the threads of kernels read and write.
#pragma once

#include <cstddef>

#include "kernels/shadow.hpp"

namespace cusim {

class GridRun;

/// What the calling operating-system thread checks accesses for; no run where it checks none.
struct Watched {
  GridRun* run = nullptr;
  const std::byte* stack = nullptr;  ///< the running thread's, of Fiber::bytes
};
extern constinit thread_local Watched watched [[gnu::tls_model("initial-exec")]];

/// Before a launch is checked: forgets what was learnt of addresses.
void begin_checks(GridRun& run);

/// Checks one access of the running thread. `aligned`: the address must be a multiple of `bytes`.
void check(const void* address, std::size_t bytes, Access access, bool aligned);

}  // namespace cusim
