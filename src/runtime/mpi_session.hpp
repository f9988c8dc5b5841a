// MPI, from its start to its end.
#pragma once

#include <chrono>
#include <optional>
#include <set>
#include <vector>

#include <lockstep/control/phase_table.hpp>

#include "runtime/sibling_watch.hpp"

namespace lockstep {

/// Initialises MPI, unless the program has done so itself, and then ends it too.
class MpiSession {
 public:
  /// CommError if this MPI cannot be called from several threads at once: the watchdog does.
  /// MPI may take `patience` to start, and to end.
  MpiSession(int& argc, char**& argv, std::chrono::duration<double> patience);
  MpiSession(const MpiSession&) = delete;
  ~MpiSession();

  /// Someone else looks after the ranks from here on.
  void started() { watch_.reset(); }

  /// Nobody does any more, until MPI has ended on all ranks of this node: one that stops in its end when the others are
  /// gone would never be found. They meet in the table, where there is one.
  void ending(std::optional<PhaseTable> phases, const std::vector<int>& ranks_on_node);

  /// Ends every rank of the job with `code`; this one also where mpirun does not answer. Any thread may call it. Does
  /// not return.
  [[noreturn]] static void abort_job(int code);

 private:
  bool have_all_finished() const { return phases_->finished() >= static_cast<int>(ranks_on_node_.size()); }

  std::chrono::duration<double> patience_;
  std::optional<PhaseTable> phases_;
  std::set<int> ranks_on_node_;
  std::optional<SiblingWatch> watch_;  ///< uses the above
  bool owned_ = false;
};

}  // namespace lockstep
