// MPI, from its start to its end.
#pragma once

#include <atomic>
#include <chrono>
#include <optional>
#include <set>
#include <vector>

#include "core/control/phase_table.hpp"
#include "core/watch/kept_signals.hpp"
#include "job/runtime/sibling_watch.hpp"

namespace lockstep {

/// The signals that a runtime keeps: none as a guest.
inline KeptSignals::Keep kept_by(const RuntimeOptions& options) {
  return options.communicator ? KeptSignals::Keep::none : KeptSignals::Keep::both;
}

/// Initialises MPI and ends it, unless the program has done so. Leaves the process of a guest as it is.
class MpiSession {
 public:
  /// MPI gets the stall timeout to start, and again to end. Refuses a foreign launch, unless as a guest. ConfigError if
  /// this process may open too few files for MPI, or if only another thread may call MPI. InvalidArgument for a guest
  /// without MPI or without a communicator, ContextError in a process of MPI_Comm_spawn's.
  MpiSession(int& argc, char**& argv, const RuntimeOptions& options);
  MpiSession(const MpiSession&) = delete;
  /// As end.
  ~MpiSession();

  /// COLL. Ends MPI, if this object has started it, with all ranks of this node. LOCAL the second time.
  void end() noexcept;

  /// LOCAL. The program ends MPI, although it has not started it.
  void leave_to_program() { owned_ = false; }

  /// From here on something else watches the ranks.
  void started() { watch_->rest(); }

  /// LOCAL. While the job starts, what this rank reports is claimed in the table too, which must live until `started`.
  void claim_in(PhaseTable& table) { watch_->claim_in(table); }

  /// See SiblingWatch. After the end of MPI there are none.
  void set_deadline(std::chrono::duration<double> time, std::function<void()> late) {
    if (watch_) watch_->set_deadline(time, std::move(late));
  }
  void clear_deadline() { set_deadline({}, nullptr); }

  /// The ranks in MPI_COMM_WORLD of a guest's replicas; empty without a guest.
  const std::vector<int>& world_ranks() const { return world_ranks_; }

  /// From here on nothing else watches the ranks, until MPI has ended on all ranks of this node: if one stopped while
  /// ending after the others are gone, nobody would find it. If there is a table, they meet there.
  void ending(std::optional<PhaseTable> phases, const std::vector<int>& ranks_on_node);

  /// LOCAL, without a message. The ranks in MPI_COMM_WORLD of a communicator (MPI_Comm_c2f). InvalidArgument, which
  /// begins with `what`, if it is none, or not a part of that.
  static std::vector<int> world_ranks_of(int communicator, std::string_view what);

  /// By this class or by the program. ContextError if it has ended since.
  static bool has_been_started();

  /// MPI_Finalize, with MPI's plug-ins kept loaded.
  static void finalize() noexcept;

  /// Whether this thread may call MPI.
  static bool may_call_mpi();

  /// Whether every thread may.
  static bool all_threads_may_call_mpi();

  /// Ends every rank of the job with `code`, and this one even if mpirun does not answer. On a thread that may not call
  /// MPI, ends this process alone, and the launcher ends the others because of that.
  [[noreturn]] static void abort_job(int code);

  /// LOCAL. Whether this thread is in abort_job.
  static bool is_aborting();

 private:
  void take_level(int provided);
  static void require_not_spawned();
  bool is_guest() const { return !world_ranks_.empty(); }
  bool have_all_finished() const { return phases_->finished() >= static_cast<int>(ranks_on_node_.size()); }

  std::chrono::duration<double> patience_;
  RuntimeOptions::OnStall on_stall_;
  bool is_launched_;
  std::optional<PhaseTable> phases_;
  std::set<int> ranks_on_node_;
  std::atomic<bool> ended_own_ = false;  ///< whether this rank has done everything that comes before the end of MPI
  std::optional<SiblingWatch> watch_;    ///< uses the members above
  bool owned_ = false;
  bool is_ending_ = false;  ///< `ending` was called
  bool has_ended_ = false;
  std::vector<int> world_ranks_;
};

}  // namespace lockstep
