// One line per job: the rank of a node that claims the report prints it.
#pragma once

#include "control/phase_table.hpp"

namespace lockstep {

/// True for the first caller among this node's ranks of the job. `table` may be null: there is none while the job
/// starts and ends. The claim is therefore also a name without a file: an abstract socket, which ends with this
/// process. A rank that claims should stay until the others have seen it or have been told to end.
bool claim_report(PhaseTable* table);

/// Whether a rank of this node has claimed the report and is still alive.
bool report_is_claimed();

}  // namespace lockstep
