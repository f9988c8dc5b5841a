// This process's part of the job: the one Runtime of a Python program.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include <sys/types.h>

#include <lockstep/core/base/here.hpp>
#include <lockstep/job/runtime/runtime.hpp>
#include <lockstep/sync/group/group.hpp>

namespace lockstep::python {

class Completions;
class Desk;
class Mail;
class StoreServer;

/// A group, and whether the job's watchdog follows it on all of its ranks.
struct MadeGroup {
  Group group;
  bool is_watched = true;
};

/// Started once, and never destroyed: the process leaves the job when it exits, with all others (Runtime::~Runtime),
/// and by then Python may be gone.
class Process {
 public:
  /// COLL over the job, blocking, without Python's lock. The first call starts the runtime, and MPI unless the program
  /// has; later ones return the same object. What Runtime throws; ConfigError for an MPI that allows one thread alone.
  static Process& start(std::chrono::duration<double> stall_timeout, RuntimeOptions::OnStall on_stall);

  /// Null before `start`.
  static Process* current();

  /// LOCAL, from any thread. Whether a process that has started has forked this one, which then has no part in the job.
  static bool is_of_parent();

  /// InvalidArgument in such a process.
  static void require_own();

  int rank() const { return runtime_.rank(); }
  int size() const { return runtime_.size(); }
  double stall_seconds() const { return stall_timeout_.count(); }
  /// Whether the watchdog ends the job at a stall, rather than only warns of it.
  bool ends_stalls() const { return on_stall_ == RuntimeOptions::OnStall::end; }

  std::vector<int> all_ranks() const;

  /// COLL over `ranks` of the job, in this order. Each call makes another group; that of all ranks, if `ranks` is
  /// empty, is one and the same. The watchdog has room for some of them on each rank, the first.
  MadeGroup make_group(const std::vector<int>& ranks, const Here& here);

  /// As Runtime::working_alone.
  std::shared_ptr<const void> working_alone() { return runtime_.working_alone(); }

  Completions& completions() { return *completions_; }
  Mail& mail() { return *mail_; }
  StoreServer& store_server() { return *store_server_; }

  /// LOCAL, without Python's lock. Before Python ends: waits for what is under way, and ends the threads that may call
  /// into Python. Returns what made a call fail that nobody has waited for; empty if there is none.
  std::string end_python();

  /// LOCAL. Before MPI ends.
  void end_messages();

 private:
  explicit Process(const RuntimeOptions& options);
  void open();

  pid_t process_;
  std::chrono::duration<double> stall_timeout_;
  RuntimeOptions::OnStall on_stall_;
  Runtime runtime_;
  /// Kept: all ranks would have to free them in one order, and Python frees them at any time.
  std::vector<Group> groups_;
  std::size_t groups_shown_ = 0;  ///< to the watchdog of this rank
  std::unique_ptr<Completions> completions_;
  std::unique_ptr<StoreServer> store_server_;
  std::unique_ptr<Mail> mail_;
  std::unique_ptr<Desk> desk_;  ///< last, because its thread calls those above
};

}  // namespace lockstep::python
