// MPI, from its start to its end.
#pragma once

#include <chrono>
#include <optional>

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

  /// Someone else looks after the ranks from here on; or nobody does any more, until MPI has ended.
  void started() { watch_.reset(); }
  void ending() { watch_.emplace("ending", patience_); }

  /// Ends every rank of the job with `code`; this one also where mpirun does not answer. Any thread may call it. Does
  /// not return.
  [[noreturn]] static void abort_job(int code);

 private:
  std::chrono::duration<double> patience_;
  std::optional<SiblingWatch> watch_;
  bool owned_ = false;
};

}  // namespace lockstep
