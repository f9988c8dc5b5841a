// One line a job: whichever rank of a node claims the report prints it.
#pragma once

#include <lockstep/control/phase_table.hpp>

namespace lockstep {

/// True for the first caller among this node's ranks of the job. `table` may be null: while the job starts and ends
/// there is none. So the claim is a name too, one that no file stands for: an abstract socket, which goes with this
/// process. Who claims should therefore stay until the others have seen it, or have been told to end.
bool claim_report(PhaseTable* table);

/// Whether a rank of this node has claimed it, and is still there.
bool report_is_claimed();

}  // namespace lockstep
