#include "core/watch/ending_signals.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>
#include <unistd.h>

#include "core/watch/signal_handler.hpp"

namespace lockstep {
namespace {

constexpr std::array<std::pair<int, const char*>, 31> signal_names{{
    {SIGHUP, "SIGHUP"},   {SIGINT, "SIGINT"},   {SIGQUIT, "SIGQUIT"},     {SIGILL, "SIGILL"},
    {SIGTRAP, "SIGTRAP"}, {SIGABRT, "SIGABRT"}, {SIGBUS, "SIGBUS"},       {SIGFPE, "SIGFPE"},
    {SIGKILL, "SIGKILL"}, {SIGUSR1, "SIGUSR1"}, {SIGSEGV, "SIGSEGV"},     {SIGUSR2, "SIGUSR2"},
    {SIGPIPE, "SIGPIPE"}, {SIGALRM, "SIGALRM"}, {SIGTERM, "SIGTERM"},     {SIGSTKFLT, "SIGSTKFLT"},
    {SIGCHLD, "SIGCHLD"}, {SIGCONT, "SIGCONT"}, {SIGSTOP, "SIGSTOP"},     {SIGTSTP, "SIGTSTP"},
    {SIGTTIN, "SIGTTIN"}, {SIGTTOU, "SIGTTOU"}, {SIGURG, "SIGURG"},       {SIGXCPU, "SIGXCPU"},
    {SIGXFSZ, "SIGXFSZ"}, {SIGPROF, "SIGPROF"}, {SIGVTALRM, "SIGVTALRM"}, {SIGWINCH, "SIGWINCH"},
    {SIGIO, "SIGIO"},     {SIGPWR, "SIGPWR"},   {SIGSYS, "SIGSYS"},
}};

/// Those that do not end a process by default, and those that nobody can take or somebody else here takes.
bool is_left_alone(int signal) {
  constexpr std::array others{SIGCHLD,  SIGCONT, SIGSTOP, SIGTSTP, SIGTTIN, SIGTTOU, SIGURG,
                              SIGWINCH, SIGKILL, SIGTERM, SIGINT,  SIGUSR2, SIGXCPU};
  return std::ranges::find(others, signal) != others.end();
}

constexpr int most_signals = 65;
std::array<struct sigaction, most_signals> replaced;
std::atomic<std::atomic<std::uint64_t>*> note_in_use{nullptr};
std::atomic<pid_t> noting_process{0};

bool is_fault(int signal) {
  return signal == SIGSEGV || signal == SIGBUS || signal == SIGFPE || signal == SIGILL || signal == SIGABRT;
}

/// Whether the instruction that made it is repeated after the handler, and makes it again.
bool comes_again(int signal, const siginfo_t& info) {
  return info.si_code > 0 && is_fault(signal) && signal != SIGABRT;
}

void on_ending(int signal, siginfo_t* info, void*) {
  // A child that the program has forked is not this process.
  if (auto* const note = note_in_use.load(); note && noting_process == ::getpid())
    note->store(static_cast<std::uint64_t>(signal));
  ::sigaction(signal, &replaced[static_cast<std::size_t>(signal)], nullptr);
  if (!comes_again(signal, *info)) ::raise(signal);
}

}  // namespace

std::string name_of_signal(int signal) {
  const auto found = std::ranges::find(signal_names, signal, &std::pair<int, const char*>::first);
  if (found != signal_names.end()) return found->second;
  if (signal >= SIGRTMIN && signal <= SIGRTMAX) return fmt::format("SIGRTMIN+{}", signal - SIGRTMIN);
  return fmt::format("signal {}", signal);
}

EndingSignals::EndingSignals(KeptSignals::Keep keep) {
  if (keep == KeptSignals::Keep::none) return;
  for (int signal = 1; signal <= std::min(SIGRTMAX, most_signals - 1); ++signal)
    if (struct sigaction now = {}; !is_left_alone(signal) && ::sigaction(signal, nullptr, &now) == 0 && is_default(now))
      before_[signal] = now;
}

EndingSignals::~EndingSignals() {
  if (noting_process != ::getpid()) return;
  for (const auto& [signal, before] : before_)
    // The program may have taken it since.
    if (struct sigaction now = {}; ::sigaction(signal, nullptr, &now) == 0 && is_handled_by(now, on_ending))
      ::sigaction(signal, &before, nullptr);
  note_in_use = nullptr;
}

void EndingSignals::note_in(std::atomic<std::uint64_t>& note) {
  note_in_use = &note;
  noting_process = ::getpid();
  for (auto& [signal, before] : before_) {
    // What MPI has installed for a fault ends the process after it has shown a stack; other handlers may go on.
    ::sigaction(signal, nullptr, &before);
    if (!is_default(before) && !is_fault(signal)) continue;
    replaced[static_cast<std::size_t>(signal)] = before;
    handle_signal(signal, on_ending);
  }
}

}  // namespace lockstep
