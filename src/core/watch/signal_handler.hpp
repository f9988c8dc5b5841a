// Handlers of signals.
#pragma once

#include <csignal>

namespace lockstep {

/// Gives this thread a stack for signal handlers, unless it has one. A kernel may keep numbers far below its stack
/// pointer, as sgemm of oneDNN 2.6 does, where a handler on the same stack would overwrite them.
void make_room_for_handler();

using SignalHandler = void (*)(int signal, siginfo_t* info, void*);

/// Sets the handler, which runs on such a stack. It can reach only globals.
void handle_signal(int signal, SignalHandler handler, int more_flags = 0);

bool is_default(const struct sigaction& action);
bool is_handled_by(const struct sigaction& action, SignalHandler handler);

}  // namespace lockstep
