// What a test asks of the counts, in a program or through dlsym.
#pragma once

#include <cstdint>

/// How often a function of the three libraries was called so far; or of a group: "launches", "host waits", "copies",
/// "allocations".
extern "C" [[gnu::visibility("default")]] std::uint64_t cusim_counts(const char* name);
