// What a test asks of the counts, in a program or through dlsym.
#pragma once

#include <cstdint>

/// How often a function of the three libraries was called so far; or of a group: "launches", "host waits", "copies",
/// "allocations". A host wait is a call by which the host learns that work is done; a loop of them, with nothing
/// enqueued meanwhile, is one.
extern "C" [[gnu::visibility("default")]] std::uint64_t cusim_counts(const char* name);
