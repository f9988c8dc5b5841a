// How a job ends: one line on stderr, one exit code, no process left.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <string>
#include <string_view>
#include <thread>

#include <mpi.h>
#include <unistd.h>

#include <lockstep/core/base/error.hpp>
#include <lockstep/job/runtime/runtime.hpp>

#include "core/control/job.hpp"
#include "core/control/meeting_point.hpp"
#include "core/control/phase_table.hpp"
#include "job/runtime/mpi_session.hpp"

namespace lockstep {

/// The process's way out. While it lives, std::terminate, std::exit and the program's own MPI_Finalize call it too.
/// Ending the job needs neither a new thread nor memory: without it, a failure has a shorter line.
class JobEnd {
 public:
  /// Who ends MPI after the runtime has ended.
  enum class EndOfMpi : std::uint8_t { runtime, program };

  /// Reads `communicator` and `on_failure` from `options`. `session` limits the wait for others. Calls `end_runtime`
  /// when all ranks have left the job by exit or by the program's MPI_Finalize, so that nobody destroys the runtime
  /// before; it must not throw.
  JobEnd(Job& job, std::string name, const RuntimeOptions& options, MpiSession& session,
         std::function<void(EndOfMpi)> end_runtime);
  JobEnd(const JobEnd&) = delete;
  ~JobEnd();

  /// Set later than the rest: this rank's full name, where its phases are shown, and how long a line takes to be known
  /// on other nodes, if they listen.
  void set_name(std::string name) { name_ = std::move(name); }
  void set_phases(PhaseTable* phases, std::chrono::milliseconds until_line_is_known = {}) {
    phases_ = phases;
    until_line_is_known_ = until_line_is_known;
  }

  /// Whether the process has one.
  static bool exists();

  /// With RuntimeOptions::OnFailure::report, has `after` print its line all the same.
  void speak() { speaks_ = true; }

  /// Tells the other ranks of this failure, unless they know of it. Once they know, prints it once per job and returns
  /// the exit code: the job may end in order. If they do not come soon, or in a guest, ends the job and does not
  /// return. With RuntimeOptions::OnFailure::report, waits as an agreement does, prints nothing, and returns.
  Error::ExitCode after(const std::exception_ptr& exception) noexcept;

  /// The same for an exception of which nothing is known but that it leaves the runtime.
  void after_unknown() noexcept;

  /// COLL, blocking. Returns when every rank is here; this process may end then. Ranks that go on, because they know of
  /// no failure or ignored it, are told wherever they are. LOCAL if this rank has left.
  void leave() noexcept;

  /// From any thread, when the job is lost: the program may end this process in its own way, by exit or MPI_Finalize.
  void give_way() { gives_way_ = true; }

  /// Whether this rank has known of a failure. From any thread.
  bool has_failed() const { return said_; }

  /// As std::terminate does. Does not return.
  [[noreturn]] void because_of(const std::exception_ptr& exception);

  enum class Blame : std::uint8_t { this_rank, nobody };

  /// Ends the job because of something that only this rank knows. Does not return.
  [[noreturn]] void alone(const std::string& what, Error::ExitCode cause, Blame blame = Blame::this_rank);

 private:
  static void on_terminate();
  static void on_exit(int status, void*);
  static int on_finalize(MPI_Comm, int, void*, void*);

  /// This process calls exit. Returns if all ranks do, or leave the job in another way, or if there is only this one.
  void exited(int status);

  /// The program calls MPI_Finalize while the runtime lives. Returns if all ranks do, or leave in another way.
  void finalized();

  /// Whether this thread is where the program does nothing with the other ranks, and may meet them.
  bool may_meet() const;
  bool exit_with_others(const std::string& what, Error::ExitCode code);
  void retire(EndOfMpi end_of_mpi);
  Error::ExitCode settle(const std::exception_ptr& exception);
  void has_left(bool was_stopped);
  [[noreturn]] void end_job(std::string_view line, int code);
  Error::ExitCode end_shortly(const std::exception_ptr& exception);
  [[noreturn]] void end_for_all(const AgreedFailure& failure);
  std::string told(const std::exception_ptr& exception) const;
  void announce(const std::exception_ptr& exception);

  /// Waits for the end of this process if the ranks have met to leave, but a watchdog already ends the job.
  void wait_if_being_ended() const;

  /// Prints once per job. Every rank has the same line, and replica 0 is always among them.
  void say(const AgreedFailure& failure);

  Job& job_;
  MeetingPoint& meeting_;
  std::string name_;
  PhaseTable* phases_ = nullptr;
  std::chrono::milliseconds until_line_is_known_{0};
  bool is_guest_;
  bool reports_;
  bool speaks_;
  std::atomic<bool> said_ = false;  ///< the failure: by replica 0, to which other ranks leave it
  bool has_left_ = false;           ///< the job, with all ranks
  std::atomic<bool> gives_way_ = false;
  bool is_retired_ = false;  ///< the runtime has ended before it was destroyed
  pid_t process_ = ::getpid();
  std::thread::id thread_ = std::this_thread::get_id();  ///< the only one that meets other ranks
  MpiSession& session_;
  std::function<void(EndOfMpi)> end_runtime_;
  int finalize_hook_ = MPI_KEYVAL_INVALID;
  std::terminate_handler previous_;
};

}  // namespace lockstep
