// A job of many ranks inside one process, for tests. The ranks are threads, and exactly one runs at a time, in
// virtual time, in an order drawn from a seed. A schedule that fails once in ten thousand fails every time under its
// seed, and takes milliseconds.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <limits>
#include <string_view>
#include <vector>

#include <lockstep/core/base/export.hpp>
#include <lockstep/sync/strategy/strategy.hpp>

namespace lockstep::sim {

/// Times are virtual. They are counted from the start of the job, and pass only at scheduling points: where a rank
/// comes to a call that meets other ranks or moves their data, where it waits for them there, and where it sleeps.
struct Options {
  /// A fault of one rank, at its `point`-th scheduling point (counted from 0) or at `time`, whichever comes first. Has
  /// no effect if the rank reaches neither. Messages are not lost: MPI loses none.
  struct Fault {
    enum class Kind : std::uint8_t {
      die,   ///< as by SIGKILL; noticed soon, with PeerError on the others
      stop,  ///< as by SIGSTOP; noticed after the stall timeout, with StallError on the others
    };
    static constexpr std::uint64_t no_point = std::numeric_limits<std::uint64_t>::max();
    static constexpr std::chrono::nanoseconds no_time = std::chrono::nanoseconds::max();

    Kind kind = Kind::die;
    int rank = 0;
    std::uint64_t point = no_point;
    std::chrono::nanoseconds time = no_time;
  };

  int ranks = 8;

  /// Consecutive ranks share a node; the last node takes what is left over.
  int ranks_per_node = std::numeric_limits<int>::max();
  std::uint64_t seed = 0;

  std::vector<Fault> faults = {};

  /// How long a rank may be silent, or keep others waiting in an agreement, in virtual time. As in RuntimeOptions.
  std::chrono::nanoseconds stall_timeout = std::chrono::seconds{60};

  /// The longest latency of a message. Latencies are drawn from 0 to this, now and then to a hundred times this.
  std::chrono::nanoseconds longest_latency = std::chrono::microseconds{20};

  /// Gets each event as a line, in order: "12345 ns: replica 3: max for merge_call #1 (trainer.cpp:120)", where `max`
  /// is an agreement, "12400 ns: replica 0: all_gather of f32[12] cut at 0 6 12", … The same options and program give
  /// the same lines.
  std::function<void(std::string_view line)> trace = {};

  /// Gets one line if the job fails, which says how to reproduce it: "sim: seed 1234, 8 ranks: replica 2 …". If empty,
  /// the message of the exception that `run` throws ends with "(sim: seed 1234, 8 ranks)" instead, if its type is one
  /// of this library's.
  std::function<void(std::string_view line)> report = {};

  /// For the strategy that `body` gets, as in RuntimeOptions.
  ReductionOptions reductions = {};
};

/// Blocking. Calls `body(strategy, rank)` on one thread per rank, and returns when all have ended. A rank's strategy
/// sends messages that take random times. In every other way it is the strategy that a Runtime hands out: the same
/// agreements, verdicts, messages ("replica 2 (worker:2, host sim) …") and bits of sums.
///
/// - Ranks share what the process shares, so a rank's own state must be local to `body`. No two ranks run at once, so
///   they may write to shared memory and use a test framework's assertions without a lock. A rank may block its thread
///   only in calls of this library.
/// - The end is agreed, as under mpirun. If a rank returns while others continue, all of them get MismatchError. If an
///   exception that the others do not know of yet leaves `body` on one rank, it ends the job: the others throw
///   PeerError wherever they are.
/// - If ranks wait for each other and none can continue, the job ends at once with StallError on all of them, which
///   says where each rank is. If ranks agreed on one data collective and started different ones, it ends with
///   CommError.
/// - A rank that died or stopped stays where it is. When the others have ended, an exception that is not a
///   std::exception unwinds its stack. So, where ranks die, keep calls of this library out of assertion macros, which
///   catch everything.
///
/// When the job is over, throws what it failed with, if anything: the exception of the rank to blame if it threw one of
/// its own, else the verdict as the lowest rank got it. A verdict that `body` caught on every rank is not a failure,
/// unless it ended the job. InvalidArgument for invalid options.
///
/// Prints nothing, so that a test that expects a failure is silent when it passes. Exceptions of the program's own
/// types are thrown as they are, without the seed, so a test that tries several seeds captures them for its own
/// assertions. What is not even a std::exception is taken for a failed assertion of a test framework: a line with the
/// seed then goes to stderr.
LOCKSTEP_API void run(Options options, std::function<void(Strategy&, int rank)> body);

}  // namespace lockstep::sim
