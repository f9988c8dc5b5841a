// How a job ends: one line on stderr, one exit code, no process left.
#pragma once

#include <exception>
#include <string>

#include <lockstep/base/error.hpp>
#include <lockstep/strategy/replica_group.hpp>

#include "control/phase_table.hpp"

namespace lockstep {

/// The process's way out. While it lives, std::terminate calls it too.
class JobEnd {
 public:
  JobEnd(ReplicaGroup& group, std::string name);
  JobEnd(const JobEnd&) = delete;
  ~JobEnd();

  /// Set later than the rest: this rank's full name, and where its phases are shown.
  void set_name(std::string name) { name_ = std::move(name); }
  void set_phases(PhaseTable* phases) { phases_ = phases; }

  /// If every rank knows of this failure, prints it once per job and returns the exit code: the job may end in order.
  /// Otherwise ends the job at once and does not return.
  ExitCode after(const std::exception_ptr& exception);

  /// COLL, blocking. Returns when every rank is here; this process may end then. Ranks that go on, because they know of
  /// no failure or ignored it, are told wherever they are.
  void leave() noexcept;

  /// Ends the job because of something that only this rank knows. Does not return.
  [[noreturn]] void alone(const std::string& what, ExitCode cause);

 private:
  static void on_terminate();

  /// Prints once per job. Every rank has the same line, and replica 0 is always among them.
  void say(const AgreedFailure& failure);

  ReplicaGroup& group_;
  MeetingPoint& meeting_;
  std::string name_;
  PhaseTable* phases_ = nullptr;
  bool said_ = false;  ///< by replica 0; other ranks leave it to that one
  std::terminate_handler previous_;
};

/// Writes `line` and a line break to stderr in one piece, in any state of the program.
void print_line(std::string line);

}  // namespace lockstep
