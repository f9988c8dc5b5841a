// A job of many ranks inside one process, for tests. The ranks are threads of which exactly one runs at a time, in
// virtual time, in an order drawn from a seed: a schedule that fails once in ten thousand fails every time under its
// seed, and takes milliseconds.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <limits>
#include <string_view>
#include <vector>

#include <lockstep/strategy/strategy.hpp>

namespace lockstep::sim {

/// Virtual time: since the start of the job, or a length. It passes only where ranks wait: for a message, or in
/// `sleep`.
using Time = std::chrono::nanoseconds;

/// What happens to a rank, at its `point`-th scheduling point (counted from 0) or at `time`, whichever comes first.
/// Nothing happens where the rank gets to neither. Messages are not lost: MPI loses none.
struct Fault {
  enum class Kind : std::uint8_t {
    die,   ///< as by SIGKILL. It is noticed soon: PeerError on the others
    stop,  ///< as by SIGSTOP. It is noticed after the stall timeout: StallError on the others
  };
  static constexpr std::uint64_t no_point = std::numeric_limits<std::uint64_t>::max();
  static constexpr Time no_time = Time::max();

  Kind kind = Kind::die;
  int rank = 0;
  std::uint64_t point = no_point;
  Time time = no_time;
};

struct Options {
  int ranks = 8;

  /// Neighbours share a node; the last one has what is left over.
  int ranks_per_node = std::numeric_limits<int>::max();
  std::uint64_t seed = 0;

  std::vector<Fault> faults = {};

  /// How long a rank may be silent, or keep others waiting in an agreement, as in RuntimeOptions.
  Time stall_timeout = std::chrono::seconds{60};

  /// Of a message: anything up to this, and now and then a hundred times as much.
  Time longest_latency = std::chrono::microseconds{20};

  /// Gets each thing that happens as a line, in order: "12345 ns: replica 3: max for merge_call #1 (trainer.cpp:120)",
  /// where `max` is an agreement, "12400 ns: replica 0: all_gather of f32[12] cut at 0 6 12", … The same lines for
  /// the same options and program.
  std::function<void(std::string_view line)> trace = {};

  /// Gets one line if the job fails, which says how to see it again: "sim: seed 1234, 8 ranks: replica 2 …". Where
  /// this is empty, the line goes to stderr.
  std::function<void(std::string_view line)> report = {};

  /// Of the strategy that `body` gets, as in RuntimeOptions.
  ReductionOptions reductions = {};
};

/// Blocking. Calls `body(strategy, rank)` on a thread for each rank, and returns when all have ended. A rank's strategy
/// has communicators whose messages take random times, and is in every other way the one that a Runtime hands out: the
/// same agreements, verdicts, messages ("replica 2 (worker:2, host sim) …") and bits of sums.
///
/// - Ranks share what the process shares. What is meant to be a rank's own must be a local of `body`. As no two ranks
///   run at once, they may write to common memory and use assertions of a test framework without a lock; none may
///   block the thread but in calls of this library.
/// - The end is agreed, as under mpirun: a rank that returns while others go on is a MismatchError on all of them. An
///   exception that leaves `body` on one rank, and that the others do not know of yet, ends the job: they throw
///   PeerError wherever they are.
/// - Where ranks wait for each other and none can go on, the job ends at once: StallError on all of them, which says
///   who is where. So it does where they agreed on one data collective and started another, with CommError.
/// - A rank that died or stopped stays where it is. When the others have ended its stack is unwound by an exception
///   that is no std::exception; so where ranks die, keep calls of this library out of assertion macros, which catch
///   all.
///
/// When the job is over, throws what it failed with, if anything: the exception of the rank to blame where it threw one
/// of its own, else the verdict as the lowest rank got it. A verdict that `body` caught on every rank is no failure,
/// unless it ended the job. InvalidArgument for options that make no sense.
void run(Options options, std::function<void(Strategy&, int rank)> body);

/// On a simulated rank: lets others run. Elsewhere it does nothing, so that a trainer may say it anywhere.
void yield();

/// For simulated ranks, ContextError elsewhere: comes back when so much virtual time has passed. Others run meanwhile.
void sleep(Time length);

/// For simulated ranks, ContextError elsewhere.
Time now();

/// The scheduling points that this rank has passed so far: one when it comes to a call of either plane, to `yield` or
/// `sleep`, and one when it has to wait for the others there. For simulated ranks, ContextError elsewhere.
std::uint64_t points();

}  // namespace lockstep::sim
