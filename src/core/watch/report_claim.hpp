// One line per job: the rank of a node that claims the report prints it.
#pragma once

#include <chrono>
#include <optional>

#include "core/control/phase_table.hpp"

namespace lockstep {

/// True for the first caller among this node's ranks of the job, which ends it with `code`, if it knows that: those
/// that come later, and share `table`, end with PhaseTable::code_of_report. So the launcher hears of one code from
/// them, whichever comes to it first. While the job starts and ends, `table` is null, so the claim is also an abstract
/// socket, which ends with this process. What processes of other users hold does not count. A rank that claims should
/// stay until the others have seen it or have been told to end.
bool claim_report(PhaseTable* table, std::optional<int> code);

/// A rank that reports ends the job and is then missing itself. It stays this long, so that the others see its claim.
inline constexpr std::chrono::milliseconds until_claim_is_seen{700};

/// Whether a rank of this node has claimed the report and is still alive.
bool report_is_claimed();

}  // namespace lockstep
