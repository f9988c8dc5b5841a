// What a runtime is made of, from the start of MPI to a strategy.
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <lockstep/runtime/runtime.hpp>

#include "base/deadline.hpp"
#include "cluster/device_binding.hpp"
#include "cluster/rank_map.hpp"
#include "control/channel.hpp"
#include "control/ending_signals.hpp"
#include "control/kept_signals.hpp"
#include "control/meeting_point.hpp"
#include "control/tag.hpp"
#include "control/watchdog.hpp"
#include "device/device.hpp"
#include "runtime/inherited_state.hpp"
#include "runtime/job_end.hpp"
#include "runtime/mpi_session.hpp"
#include "runtime/node.hpp"
#include "strategy/replica_group.hpp"

namespace lockstep {

/// What NCCL must find in the environment. The environment may be written only before there are other threads.
struct NcclEnvironment {
  explicit NcclEnvironment(const RuntimeOptions& options);
};

/// Signals that a user sends to a running job: to stop it, or to ask where it is. Caught from here on.
struct CaughtSignals {
  explicit CaughtSignals(const RuntimeOptions& options);
};

/// Ends the process if another MPI's launcher started it.
struct OwnLauncher {
  explicit OwnLauncher(const RuntimeOptions& options);
};

/// Members in order of acquisition; they are destroyed in reverse.
struct Runtime::Impl {
  NcclEnvironment nccl_environment;             ///< before MPI, which starts threads
  std::string launch;                           ///< what is doubtful about how the process was started
  InheritedState inherited;                     ///< before MPI, whose threads begin with the modes of this one
  CaughtSignals caught_signals;                 ///< before MPI, whose start takes time
  KeptSignals signals;                          ///< held through all watches, which take turns
  std::optional<EndingSignals> ending_signals;  ///< found before MPI starts, noted while the node has a table
  OwnLauncher can_start_mpi;
  Deadline others_come{"for the end of the job"};  ///< before MPI: once the ranks have met, none may lack it alone
  MpiSession session;
  OwnLauncher has_started_mpi;
  std::unique_ptr<Device> device;  ///< bound later; the group, which uses it, is destroyed first
  std::unique_ptr<ReplicaGroup> group;
  JobEnd end;
  RuntimeOptions options;
  Node node;
  std::optional<RankMap> ranks;
  std::vector<std::string> names;
  std::optional<Watchdog> watchdog;
  std::optional<Strategy> strategy;
  bool is_finished = false;
  int exceptions_before = std::uncaught_exceptions();

  /// Starts MPI. The rest is `start`'s.
  Impl(int& argc, char**& argv, const RuntimeOptions& given);
  Impl(const Impl&) = delete;
  ~Impl();

  /// The same in a program that has started MPI. InvalidArgument in another.
  static std::unique_ptr<Impl> without_arguments(const RuntimeOptions& given);

  MeetingPoint& meeting() { return group->meeting(); }
  ControlChannel& channel() { return group->meeting().channel(); }

  /// COLL. Runs `step` on every rank; if it fails on one, it fails on all. Its own collectives must fail on all ranks
  /// or none.
  template <class Step>
  void together(const char* name, Step&& step, Here here = Here::current()) {
    try {
      step();
    } catch (...) {
      meeting().fail(std::current_exception());
    }
    meeting().agree(TagKind::start, 0, here, name);
  }

  /// COLL. Leaves the job, and ends what uses MPI or other ranks. The destructor does so, unless the process has ended
  /// the job before.
  void finish(JobEnd::EndOfMpi end_of_mpi) noexcept;

  /// COLL. From MPI to a strategy.
  void start(const std::function<RuntimeOptions()>& make_options);

 private:
  void watch(RuntimeOptions::OnTermination on_termination);
  void compare_options();

  /// COLL. Warns of what ranks have inherited that makes them slow or unequal.
  void compare_inherited_states();
  void read_cluster();

  /// COLL. Binds a device on each rank, of one kind on all of them, and adds the plane for its memory.
  void bind();
  DeviceRequest settle(DeviceRequest requested, std::span<const VisibleGpus> gpus,
                       std::span<const std::string> why_none);
  void add_device_plane(const NodePlace& place);
};

}  // namespace lockstep
