// How much memory this process uses.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/base/parts.hpp"

namespace lockstep {

struct MemoryUse {
  std::uint64_t resident = 0;  ///< bytes in memory; 0 if unknown
  std::uint64_t peak = 0;      ///< the most that there were

  bool operator==(const MemoryUse&) const = default;
};

/// As the kernel says now.
MemoryUse memory_in_use();

/// Gives back to the system what the program has freed. The C library keeps it for later, and so a block of memory that
/// is freed once counts as resident for good. Takes milliseconds.
void return_freed_memory();

/// How many bytes of address space this process may have, if there is a limit (ulimit -v).
std::optional<std::uint64_t> memory_limit();

/// Why the system refuses memory, as far as it can be told: "this process may have N bytes (ulimit -v)", or "the host
/// has no more".
LOCKSTEP_PARTS_API std::string why_no_memory();

/// From what /proc/PID/status says.
MemoryUse parse_memory_use(std::string_view status);

}  // namespace lockstep
