// The composition root: from a process under mpirun to a strategy, and back in reverse.
#pragma once

#include <chrono>
#include <concepts>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include <lockstep/core/base/error.hpp>
#include <lockstep/core/base/export.hpp>
#include <lockstep/core/base/here.hpp>
#include <lockstep/sync/group/group.hpp>
#include <lockstep/sync/reduce/reduction_options.hpp>

namespace lockstep {

class Strategy;

struct RuntimeOptions {
  /// Whether SIGTERM ends a job directly, or first asks it to stop.
  enum class OnTermination : std::uint8_t { end, ask_to_stop };

  /// What a stall does: a silent or late rank, or a host out of reach. `observe` only warns of it, once, with the
  /// sentence that would have ended the job, and keeps waiting. A rank whose process is gone still ends the job.
  enum class OnStall : std::uint8_t { end, observe };

  /// Which threads of a process may call MPI. `any` asks MPI for MPI_THREAD_MULTIPLE. `main` asks for
  /// MPI_THREAD_FUNNELED: some libraries below MPI, such as builds of UCX, UCC and hcoll, refuse more. Where MPI gives
  /// less than it was asked for, or the program has started it with less, `any` means `main`; with
  /// MPI_THREAD_SERIALIZED any thread may make the runtime.
  enum class MpiThreads : std::uint8_t { any, main };

  /// What happens after a failure that all ranks of the runtime know of: an exception in a run, different calls,
  /// replicas that differ, a training that diverged. `end` ends the job. With `report`, it becomes an exception on
  /// every rank, and the destructor neither prints nor ends anything: the program decides, and may make another
  /// runtime. run_program prints its line and returns the exit code. What the ranks cannot agree on ends the job in any
  /// case: a rank that is gone or stalls, or a sum that fails.
  enum class OnFailure : std::uint8_t { end, report };

  /// The cluster-spec file, read by rank 0. If empty, TF_CONFIG; without that, each rank is a task of its own.
  std::filesystem::path cluster_spec = {};
  /// "auto", "cpu" or "cuda". "auto" is the CPU if a node of the job, or the build, has no GPU.
  std::string device = "auto";
  /// The devices to use: a list, such as "0,2" for the ranks of every node. If empty, the first devices of each node,
  /// in order. If set, `device` must be "auto".
  std::string devices = {};
  /// For `strategy()`, and for strategies that `make_strategy` makes without other options.
  ReductionOptions reductions = {};
  /// For tests: ranks that outnumber a node's GPUs share them. They take turns. NCCL communicates through sockets, even
  /// between ranks that have a GPU each. The runtime sets environment variables for that before it starts MPI, so the
  /// program must not have other threads by then.
  bool allow_shared_gpu = false;
  /// The job ends if a rank is silent, keeps the others waiting, or waits for its GPU or for a call to its driver, for
  /// this long. Must be positive.
  std::chrono::duration<double> stall_timeout{60};
  OnStall on_stall = OnStall::end;
  /// The IPv4 network, such as "10.77.0.0/24", in which ranks of different nodes send each other heartbeats. Every host
  /// must have an address there. If empty, the first of btl_tcp_if_include (Open MPI); without that, any.
  std::string network = {};
  /// A signal, such as SIGUSR1, by which a user or a scheduler asks the job to end early (Strategy::stop_requested);
  /// mpirun forwards SIGUSR1 to every rank. It does nothing else to the process, also after the runtime. 0 for none.
  int stop_signal = 0;
  /// Whether SIGTERM to the whole job (and SIGINT, without mpirun) also asks for an early end, 0.6 s before it ends the
  /// process: mpirun kills its ranks after a second. For a program that saves its results.
  OnTermination on_termination = OnTermination::end;
  /// With `main`, a thread that must end the job, such as the watchdog's, prints its line and ends this process with
  /// the exit code. The launcher ends the others. The main thread of MPI must be the one that makes the runtime.
  MpiThreads mpi_threads = MpiThreads::any;
  /// The ranks of this runtime, if it is a guest in a program that uses MPI itself: `MPI_Comm_c2f(communicator)`, of an
  /// intracommunicator that the program keeps. See Runtime. If empty, all ranks of MPI_COMM_WORLD.
  std::optional<int> communicator = {};
  OnFailure on_failure = OnFailure::end;
  /// If set, called once on each rank when the watchdog finds that a rank is gone or stalls: on another thread, after
  /// the line on stderr, with that line's sentence. The program may save its data and end the process, also with
  /// std::exit. The thread that made the runtime may wait in MPI for ever. When the function returns, the process ends.
  /// It must be quick: the launcher may end all ranks a second after the first. A rank that ends the job because of its
  /// own failure does not call it. Of several runtimes in a process, each one's is called.
  std::function<void(const std::string& sentence, Error::ExitCode code)> on_lost = {};
  /// Anything else that must be the same on every rank: the program's own options, as text.
  std::string program_options = {};
};

/// A process's part of the job. Starts MPI, reads the cluster spec, binds the device and makes the strategy; ends them
/// in reverse. A process has one job, which a second runtime shares; the job ends with the last of its runtimes. With
/// RuntimeOptions::communicator, a runtime is a guest in a program that owns MPI.
///
/// While it lives, an uncaught exception ends the whole job with one line on stderr and the exit code of its type. A
/// rank that dies, stops or stays away is found by the other ranks, also from other nodes.
///
/// Unless the program handles these signals, and to the end of the process: SIGPIPE and SIGXFSZ are ignored, so that a
/// write without a reader, or beyond the limit of a file's size, fails instead of ending the process; at SIGXCPU, a
/// rank that has used up its CPU time ends the job with a line. If another signal ends a rank, the line names the
/// signal. A guest does none of this.
///
/// SIGUSR2, to mpirun or to any rank, makes one rank write a table to stderr of where every rank is, even if ranks
/// hang. From the constructor, or the beginning of run_program, to the end of the process, it does nothing else. The
/// runtime does not take SIGUSR2 if the program handles, ignores or blocks it by then or uses it as
/// RuntimeOptions::stop_signal, or if the runtime is a guest. With a RunRecord, the table also goes to its folder. A
/// rank for which the others have waited for three quarters of the stall timeout writes the stack of the thread that
/// made the runtime to that folder. Its watchdog sends itself SIGUSR2 for that, which can end a wait in the kernel with
/// EINTR.
class LOCKSTEP_API Runtime {
 public:
  /// COLL over the job, blocking. If it throws on one rank, it throws on every rank: ConfigError for wrong user input,
  /// PeerError if only another rank failed. It removes MPI's own arguments from `argc` and `argv`. If another MPI's
  /// launcher started the processes, so that each would be a job of one rank, this ends them all with one line and
  /// Error::ExitCode::user_input. If one process alone lacks something, such as a thread, this ends the job with a line
  /// and the exit code of that failure. ContextError after MPI_Finalize, in a process of MPI_Comm_spawn's, and for a
  /// second runtime with `argc` and `argv`.
  Runtime(int& argc, char**& argv, RuntimeOptions options = {});

  /// The same for a program that has started MPI, or has a runtime; InvalidArgument if neither. Messages about a
  /// runtime that shares a job name `here`.
  ///
  /// In a process that has a runtime, another one shares the job of the first: so libraries that know nothing of each
  /// other may each have one, in any part of the job. All ranks make and destroy theirs, and use them, in one common
  /// order, as groups. The job ends with the last of them. A runtime that shares a job uses its own `communicator` (if
  /// empty, all ranks of the job), `reductions` and `on_lost`; all other options are those of the first runtime.
  /// InvalidArgument on this rank alone, before any communication, for invalid reductions, or if `device` is another
  /// kind than that of the job. If one of its ranks is not in the job: InvalidArgument on those that have a job, and
  /// PeerError on the others. ContextError on another thread than the first's where one thread alone may call MPI.
  ///
  /// With RuntimeOptions::communicator, the runtime is a guest in a program that has started MPI, and that ends MPI
  /// after it:
  ///
  ///   Runtime runtime{{.communicator = MPI_Comm_c2f(part), .on_failure = RuntimeOptions::OnFailure::report}};
  ///
  /// Constructor and destructor are then COLL over that communicator, which may hold any part of the program's ranks.
  /// Other ranks may have a runtime of their own at the same time, and the same ranks another one afterwards. The guest
  /// communicates over communicators of its own, and frees them. It takes no signal, and leaves no handler, no
  /// environment variable and no thread of its own behind, so options that need one are a ConfigError: stop_signal,
  /// on_termination and allow_shared_gpu (with OnFailure::end, the job ends with 2). SIGTERM ends the process as
  /// before, so mpirun may end the job before a rank has said what happened. Messages that blame one replica also name
  /// its rank of MPI_COMM_WORLD. A failure that ends the job ends all of it, the ranks without a runtime too, if the
  /// launcher ends a job of which a process fails.
  explicit Runtime(RuntimeOptions options, Here here = Here::current());
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  /// LOCAL. Whether this process has a runtime, whose job another one would share.
  static bool exists();

  /// LOCAL. Ends the job because of `failure`, in the way in which an uncaught exception does: with one line and the
  /// exit code of its type. For programs whose failures are codes.
  [[noreturn]] static void end_job(const std::exception_ptr& failure);

  /// COLL over the job, blocking.
  ///
  /// It may run late, if the runtime is a static or global variable, or not at all. If all ranks return from main, or
  /// call exit or MPI_Finalize, outside of a step, they leave the job together, and each process ends with its own
  /// code. If a rank calls exit while others are elsewhere in the program, the job ends with a line.
  ~Runtime();

  /// The strategy on the ranks of this runtime. It lives as long as the runtime.
  Strategy& strategy();

  /// LOCAL. The ranks of this runtime as a group, for programs that need no strategy. It must not outlive the runtime.
  Group group();

  /// COLL over the ranks of `communicator`, agreed, blocking. `communicator` is MPI_Comm_c2f of an intracommunicator of
  /// the program. Makes a group of its ranks, in its order, as Group::subset does. Sends nothing on `communicator`,
  /// which may be freed afterwards. The group must not outlive the runtime. InvalidArgument, before any communication,
  /// for MPI_COMM_NULL, for an intercommunicator, if one of its ranks is not in the job of this runtime, and as
  /// Group::subset.
  Group group(int communicator, Here here = Here::current());

  /// COLL, agreed, blocking. Another strategy on the same ranks, with its own store. The runtime must outlive it.
  Strategy make_strategy(Here here = Here::current());
  /// The same, with other reductions.
  Strategy make_strategy(const ReductionOptions& reductions, Here here = Here::current());

  // Among the ranks of this runtime.

  int rank() const;
  int size() const;
  bool is_chief() const { return rank() == 0; }

  /// The device that this process owns: "cpu", "cuda:1", ….
  std::string device_name() const;

  /// LOCAL. Marks work of this rank that the others wait for, such as writing a file: while the result lives, its
  /// absence from an agreement is not a stall. Keep it until the rank is in that agreement.
  [[nodiscard]] std::shared_ptr<const void> working_alone();

  /// LOCAL. For measurements: the CPU time that the watchdog's thread has used so far; 0 if there is none.
  std::chrono::nanoseconds watchdog_cpu_time() const;

 private:
  friend int run_program(int&, char**&, const RuntimeOptions&, const std::function<void(Runtime&)>&);
  template <std::invocable MakeOptions>
  friend int run_program(int&, char**&, const MakeOptions&, const std::function<void(Runtime&)>&);
  struct Impl;
  explicit Runtime(std::shared_ptr<Impl> impl);
  void share(const RuntimeOptions& options, const Here& here);
  Group group_of_part(int communicator, const Here& here);
  static int run(int& argc, char**& argv, const std::function<RuntimeOptions()>& options,
                 const std::function<void(Runtime&)>& body);
  static int run_job(int& argc, char**& argv, const RuntimeOptions& options, const std::exception_ptr& wrong,
                     const std::function<void(Runtime&)>& body);
  std::shared_ptr<Impl> impl_;  ///< of the process
  bool shares_job_;             ///< with an earlier runtime
  struct Part;
  std::unique_ptr<Part> part_;  ///< of the job that it shares; null if it is the first
  int exceptions_before_ = std::uncaught_exceptions();
};

/// The body of a `main`. Starts the runtime with `options`, which are the same on every rank, and calls `body`:
///
///   int main(int argc, char** argv) { return run_program(argc, argv, {.device = "cpu"}, train); }
///
/// Every failure becomes one line on stderr for the job and the exit code for it (Error::ExitCode). If all ranks know
/// of a failure, they end in order; a rank that fails on its own ends the job, and so does one of several that calls
/// std::exit. SIGINT (unless the program handles it) and SIGTERM end the process after a line that names the step.
/// Returns the exit code after MPI has ended. A process that stops after that would block mpirun for ever, and no rank
/// is left to name it: it is continued (SIGCONT) 2 s after the stall timeout.
LOCKSTEP_API int run_program(int& argc, char**& argv, const RuntimeOptions& options,
                             const std::function<void(Runtime&)>& body);

/// The same, but calls `options()` for the options, before MPI starts. What it throws is reported like any failure; in
/// a program that has started MPI itself, it ends the whole job.
template <std::invocable MakeOptions>
int run_program(int& argc, char**& argv, const MakeOptions& options, const std::function<void(Runtime&)>& body) {
  return Runtime::run(argc, argv, options, body);
}

}  // namespace lockstep
