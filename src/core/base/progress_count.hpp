// What a process shows of itself while it does work that may take longer than others are ready to wait for it.
#pragma once

#include <cstdint>

#include "core/base/parts.hpp"

namespace lockstep::detail {

/// Says that a piece of such work is done, such as a block of a file that is read again. As long as the pieces follow
/// each other within the stall timeout, the watchdogs do not take this rank for late, however long all of them take.
/// One that does not end, such as a read from a server that is gone, makes it late after that time. Only for work that
/// has an end, on the thread that the other ranks wait for: work beside it would hide that this thread hangs.
LOCKSTEP_PARTS_API void count_progress() noexcept;

/// How many pieces the threads of this process have done. From any thread.
std::uint64_t progress_count() noexcept;

}  // namespace lockstep::detail
