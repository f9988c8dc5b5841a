// What hydra, the launcher of MPICH, takes for the life of a rank.
#pragma once

namespace lockstep {

/// COLL over the ranks of a node; does nothing under other launchers. hydra ends a job as soon as it finds the output
/// of a rank and its connection to hydra closed, before the others can say whose they were. So each rank also keeps
/// those of the rank before it open, from here to its end. hydra finds the dead rank when the next one writes, and that
/// is the line. Without the line nobody would end the job: to be called where the ranks watch each other, once MPI has
/// started. Blocks for up to two seconds, for a rank that does not come.
void hold_streams_of_neighbour();

}  // namespace lockstep
