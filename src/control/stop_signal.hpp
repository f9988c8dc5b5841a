// A signal by which a user or a scheduler asks the job to end early.
#pragma once

namespace lockstep {

/// From here to the end of the process, `signal` does nothing but be remembered: one that comes late, when the job has
/// ended, must not look like a failure. Call it on the thread that computes, whose stack the handler leaves alone.
void catch_stop_signal(int signal);

/// Whether such a signal has come.
bool stop_signal_has_come();

}  // namespace lockstep
