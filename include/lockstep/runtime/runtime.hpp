// The composition root: from a process under mpirun to a strategy, and back in reverse.
#pragma once

#include <chrono>
#include <exception>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include <lockstep/cluster/rank_map.hpp>
#include <lockstep/device/device.hpp>
#include <lockstep/reduce/cross_device_ops.hpp>
#include <lockstep/strategy/strategy.hpp>

namespace lockstep {

struct RuntimeOptions {
  /// The cluster-spec file, read by rank 0. Empty: TF_CONFIG; without that, one task a rank.
  std::filesystem::path cluster_spec;
  /// "auto", "cpu" or "cuda"; "auto" is the CPU where a node of the job, or the build, has no GPU.
  std::string device = "auto";
  /// Of `strategy()`, and of those that `make_strategy` makes without other ones.
  ReductionOptions reductions = {};
  /// Why "auto" is the CPU even where there are GPUs, such as "a gpt has no GPU kernels", for the warning that says so.
  /// Empty if nothing keeps the program from GPUs.
  std::string needs_cpu;
  /// For tests: ranks beyond a node's GPUs share them and take turns there. NCCL then goes through sockets, also between
  /// ranks that have a GPU each. Its settings are variables of the environment, so the runtime sets them first of all; a
  /// program that has threads by then must not ask for this.
  bool allow_shared_gpu = false;
  /// A rank that is silent, or late for the others, for so long ends the job.
  std::chrono::duration<double> stall_timeout{60};
  /// Whatever else must be the same on every rank: the program's own options, as text.
  std::string program_options;
};

/// Starts MPI, reads the cluster spec, binds the device and makes the strategy; ends them in reverse. One a process.
///
/// Constructor and destructor are collective over the job. The constructor throws on every rank if it throws on one:
/// ConfigError for the user's input. It takes MPI's own arguments out of `argc` and `argv`.
///
/// While it lives, an exception that nothing catches ends the whole job with one line on stderr and the exit code of
/// its type, and a rank that dies, stops or stays away is found by the other ranks, those of other nodes too
/// (watchdog.hpp).
class Runtime {
 public:
  Runtime(int& argc, char**& argv, RuntimeOptions options = {});
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;
  ~Runtime();

  Strategy& strategy();

  /// COLL, agreed: another strategy on the same ranks, with a store of its own. It must not outlive the runtime.
  Strategy make_strategy(Here here = Here::current());
  /// The same with reductions of its own.
  Strategy make_strategy(const ReductionOptions& reductions, Here here = Here::current());

  int rank() const;
  int size() const;
  bool is_chief() const { return rank() == RankMap::chief_rank(); }

  /// Which task each rank is.
  const RankMap& ranks() const;

  /// The device that this process owns.
  Device& device();

  /// The work of one rank that the others wait for (writing a file): while the result lives, its absence from an
  /// agreement is no stall. It is to live until the rank is in that agreement.
  MeetingPoint::Alone working_alone();

  /// LOCAL. What the watchdog's thread has used of a core so far; nothing where there is none.
  std::chrono::nanoseconds watchdog_cpu_time() const;

 private:
  friend int run_program(int&, char**&, const std::function<RuntimeOptions()>&, const std::function<void(Runtime&)>&);
  struct Impl;
  explicit Runtime(std::unique_ptr<Impl> impl);
  static int run(int& argc, char**& argv, const RuntimeOptions& options, const std::exception_ptr& wrong,
                 const std::function<void(Runtime&)>& body);
  std::unique_ptr<Impl> impl_;
};

/// The body of a `main`: makes the options (on every rank alike, before MPI starts) and the runtime, calls `body`, and
/// turns every way to fail into one line on stderr for the job and the exit code that it stands for (ExitCode). Where
/// the ranks know of a failure alike they end in order; where one rank fails on its own it ends the job. It returns
/// when MPI has ended, on the lowest rank of each node when the other ranks' processes are gone too, or after the stall
/// timeout: mpirun would wait for ever for one that stops on its last way.
int run_program(int& argc, char**& argv, const std::function<RuntimeOptions()>& options,
                const std::function<void(Runtime&)>& body);

}  // namespace lockstep
