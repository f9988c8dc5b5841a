// What hydra, the launcher of MPICH, takes for the life of a rank.
#pragma once

namespace lockstep {

/// COLL over the ranks of a node, once MPI has started; does nothing under other launchers. hydra ends a job as soon as
/// it finds the output of a rank and its connection to hydra closed, before the others can say whose they were. So each
/// rank also keeps those of the rank before it open, from here to its end, and hydra finds the dead rank when the next
/// one writes its line. So the ranks must watch each other. Blocks for up to two seconds, if a rank does not come.
void hold_streams_of_neighbour();

}  // namespace lockstep
