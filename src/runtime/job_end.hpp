// How a job ends: one line on stderr, one exit code, nobody left.
#pragma once

#include <exception>
#include <string>

#include <lockstep/base/error.hpp>
#include <lockstep/control/phase_table.hpp>
#include <lockstep/strategy/replica_group.hpp>

namespace lockstep {

/// The process's way out. While it lives it is also what std::terminate calls.
class JobEnd {
 public:
  JobEnd(ReplicaGroup& group, std::string name);
  JobEnd(const JobEnd&) = delete;
  ~JobEnd();

  /// Known later than the rest: this rank's full name, and where phases are shown.
  void set_name(std::string name) { name_ = std::move(name); }
  void set_phases(PhaseTable* phases) { phases_ = phases; }

  /// Says why, once per job, and returns the exit code, if every rank knows of this failure: the job may end in order.
  /// Otherwise ends it at once and does not return.
  ExitCode after(const std::exception_ptr& exception);

  /// COLL. Returns when every rank is here: those that go on, because they know of no failure or made light of it, are
  /// told wherever they are. The process may go then.
  void leave() noexcept;

  /// Ends the job because of something that only this rank knows. Does not return.
  [[noreturn]] void alone(const std::string& what, ExitCode cause);

 private:
  static void on_terminate();

  /// Once per job. Every rank has the same line, and replica 0 is always among them.
  void say(const AgreedFailure& failure);

  ReplicaGroup& group_;
  MeetingPoint& meeting_;
  std::string name_;
  PhaseTable* phases_ = nullptr;
  bool said_ = false;  ///< by replica 0; on the others, left to it
  std::terminate_handler previous_;
};

/// Writes `line` and a line break to stderr in one piece, whatever state the program is in.
void print_line(std::string line);

}  // namespace lockstep
