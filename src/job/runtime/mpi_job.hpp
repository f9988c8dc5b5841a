// A job that mpirun has started, or the part of one that a guest has: from MPI to ranks that know each other, and back.
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <lockstep/job/runtime/runtime.hpp>

#include "core/cluster/rank_map.hpp"
#include "core/control/announced_failure.hpp"
#include "core/control/channel.hpp"
#include "core/control/job.hpp"
#include "core/control/meeting_point.hpp"
#include "core/control/tag.hpp"
#include "core/watch/ending_signals.hpp"
#include "core/watch/kept_signals.hpp"
#include "core/watch/watchdog.hpp"
#include "job/runtime/inherited_state.hpp"
#include "job/runtime/job_end.hpp"
#include "job/runtime/loss_handlers.hpp"
#include "job/runtime/mpi_session.hpp"
#include "job/runtime/node.hpp"

namespace lockstep {

/// What messages call the ranks before these know each other's task and host. `world_ranks` are those of a guest.
TableOnDemand<std::string> plain_names(int ranks, std::vector<int> world_ranks);

/// Members in order of acquisition; they are destroyed in reverse.
struct MpiJob {
  std::string launch;                           ///< what is doubtful about how the process was started
  InheritedState inherited;                     ///< before MPI, whose threads begin with the modes of this one
  KeptSignals signals;                          ///< held through all watches, which take turns
  std::optional<EndingSignals> ending_signals;  ///< found before MPI starts, noted while the node has a table
  MpiSession session;
  std::shared_ptr<Job> job;
  JobEnd end;
  RuntimeOptions options;
  LossHandlers loss;
  Node node;
  std::shared_ptr<const RankMap> ranks;
  TableOnDemand<std::string> names;
  std::optional<Watchdog> watchdog;
  bool is_finished = false;

  /// COLL. Starts MPI. The rest is `begin`'s.
  MpiJob(int& argc, char**& argv, const RuntimeOptions& given);
  MpiJob(const MpiJob&) = delete;

  /// As `finish`.
  ~MpiJob();

  MeetingPoint& meeting() { return job->meeting(); }
  ControlChannel& channel() { return job->meeting().channel(); }

  /// COLL. Runs `step` on every rank; if it fails on one, it fails on all. Its own collectives must fail on all ranks
  /// or on none.
  template <class Step>
  void together(const char* name, Step&& step, Here here = Here::current()) {
    detail::announcing_failure(meeting(), step);
    meeting().agree(TagKind::start, 0, here, name);
  }

  /// COLL. Every rank's `text`, in rank order.
  std::vector<std::string> gather_texts(const std::string& text);

  /// COLL. From MPI to ranks that know each other and have the same options, which `make_options` returns. `more` says
  /// what else of the options the ranks compare.
  void begin(const std::function<RuntimeOptions()>& make_options,
             const std::function<std::string(const RuntimeOptions&)>& more);

  /// COLL. From here on messages name task and host, and SIGTERM does what the options say.
  void watch_to_the_end();

  /// COLL. Leaves the job, and ends what uses other ranks. A second call, as by the destructor, does nothing.
  void finish(JobEnd::EndOfMpi end_of_mpi) noexcept;

 private:
  void watch(RuntimeOptions::OnTermination on_termination);
  void compare_options(const std::string& more);

  /// COLL. Warns of what ranks have inherited that makes them slow or unequal.
  void compare_inherited_states();
  void read_cluster();
};

}  // namespace lockstep
