// SIGUSR2: a user asks where everyone is, or this process's watchdog asks the main thread for its stack.
#pragma once

#include <array>
#include <cstddef>
#include <optional>

namespace lockstep {

/// Where a thread was: the address at which it was interrupted, and those to which it returns, the innermost first.
struct RawStack {
  static constexpr std::size_t most_frames = 64;
  std::array<void*, most_frames> frames{};
  std::size_t count = 0;
};

/// From here to the end of the process, SIGUSR2 only sets a flag. A program that handles, ignores or blocks it keeps
/// it. Call it on the thread that computes, whose stack is recorded; the handler runs on a stack of its own.
void catch_question_signal();

/// Gives the signal back, in a program that turns out to be somebody else's.
void release_question_signal();

/// Whether SIGUSR2 has come since the last call, also if the main thread is in the kernel and does not come out of it.
bool question_has_come();

/// Has the main thread record its stack. False if it cannot be asked: the signal is the program's.
bool ask_for_stack();

/// What the main thread recorded when it was asked last; nothing until then.
std::optional<RawStack> recorded_stack();

/// The main thread's number.
int main_thread();

}  // namespace lockstep
