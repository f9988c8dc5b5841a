#include "runtime/job_end.hpp"

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <optional>
#include <thread>
#include <utility>

#include <fmt/format.h>
#include <unistd.h>

#include "base/deadline.hpp"
#include "base/exit_code.hpp"
#include "base/open_line.hpp"
#include "comm/mpi/mpi_handle.hpp"
#include "control/exceptions.hpp"
#include "control/meeting_point.hpp"
#include "control/report_claim.hpp"
#include "runtime/mpi_session.hpp"
#include "runtime/siblings.hpp"
#include "strategy/replica_group.hpp"

namespace lockstep {
namespace {

// A terminate handler can reach only globals.
std::atomic<JobEnd*> current{nullptr};

// Ranks that fail alike come at about the same time. Others may compute, or wait, for much longer.
constexpr std::chrono::seconds until_others_come{1};

// Longer than mpirun takes to end the others.
constexpr std::chrono::seconds until_chief_has_spoken{3};

// The reporting rank waits up to 3 s for mpirun, and up to 5 s for the answer to MPI_Abort.
constexpr std::chrono::seconds until_being_ended{10};

}  // namespace

JobEnd::JobEnd(ReplicaGroup& group, std::string name, const RuntimeOptions& options)
    : group_{group},
      meeting_{group.meeting()},
      name_{std::move(name)},
      is_guest_{options.communicator.has_value()},
      reports_{options.on_failure == RuntimeOptions::OnFailure::report},
      speaks_{!reports_},
      previous_{std::set_terminate(on_terminate)} {
  current = this;
  // Unlike atexit it hands over the status. It cannot be taken back, and without a current object does nothing.
  static const int installed = ::on_exit(on_exit, nullptr);
  (void)installed;
}

JobEnd::~JobEnd() {
  current = nullptr;
  // The program may have set another one since.
  if (std::get_terminate() == on_terminate) std::set_terminate(previous_);
}

bool JobEnd::exists() {
  return current != nullptr;
}

Error::ExitCode JobEnd::after(const std::exception_ptr& exception) {
  if (!is_known(exception)) announce(exception);
  if (!is_known(exception))
    alone(told(exception), exit_code_of(exception), is_common_stall(exception) ? Blame::nobody : Blame::this_rank);
  if (is_guest_ && !reports_) end_whole_job(*meeting_.failure());
  say(*meeting_.failure());
  return meeting_.failure()->code;
}

void JobEnd::after_unknown() {
  if (const auto& failure = meeting_.failure()) {
    after(failure->exception);
  } else if (reports_) {
    after(std::make_exception_ptr(Error{"it left the runtime with an exception"}));
  } else {
    alone("it left with an exception", Error::ExitCode::failure);
  }
}

/// Rank 0 speaks, and the job ends with it.
void JobEnd::end_whole_job(const AgreedFailure& failure) {
  if (meeting_.rank() != 0) std::this_thread::sleep_for(until_chief_has_spoken);
  end_job(failure.line, static_cast<int>(failure.code));
}

std::string JobEnd::told(const std::exception_ptr& exception) const {
  const std::string what = message_of(exception);
  if (!is_of_program(exception)) return what;
  return fmt::format("{}; {} was {}", what, meeting_.size() == 1 ? "this" : "it", meeting_.place());
}

bool JobEnd::is_known(const std::exception_ptr& exception) const {
  const auto& failure = meeting_.failure();
  return failure && failure->exception == exception;
}

/// If all ranks come with a failure, none of them is to blame.
void JobEnd::announce(const std::exception_ptr& exception) {
  // After a data collective that failed, or on another thread, this rank cannot meet the others.
  if (group_.has_failed() || std::this_thread::get_id() != thread_) return;
  std::optional<Deadline> deadline;
  if (!reports_) deadline.emplace(until_others_come, [&] { alone(told(exception), exit_code_of(exception)); });
  try {
    meeting_.fail(exception);
  } catch (...) {
    // `is_known` says what came of it.
  }
}

void JobEnd::say(const AgreedFailure& failure) {
  // A job that is interrupted may say so first, and then it stops too late.
  const bool speaks = speaks_ && meeting_.rank() == 0 && !said_;
  if (speaks && (failure.code != Error::ExitCode::stopped || is_guest_ || claim_report(phases_)))
    print_last_line(failure.line, static_cast<int>(failure.code));
  said_ = true;
}

void JobEnd::leave() noexcept {
  bool was_stopped = false;
  for (bool all_here = false; !all_here;) {
    const auto last = meeting_.failure();
    was_stopped = was_stopped || (last && last->code == Error::ExitCode::stopped);
    try {
      // Replica 0 may have ignored the verdict that another rank leaves with, if nothing came after it.
      const bool because_of_last = meeting_.leave_job(Here::current(), said_);
      if (because_of_last && last) say(*last);
      all_here = true;
    } catch (...) {
      (void)after(std::current_exception());
    }
  }
  // A job that was stopped has its line from replica 0, which ends in order.
  if (!was_stopped) wait_if_being_ended();
  if (phases_) phases_->enter(Phase::leaving);
}

/// mpirun continues a rank that has stopped before it ends it, and with that rank the last agreement may go through
/// after a watchdog has reported. Ranks that then began to end MPI would ask mpirun for a barrier while it clears its
/// tables: mpirun 4.1 crashes or hangs over that.
void JobEnd::wait_if_being_ended() const {
  const auto start = std::chrono::steady_clock::now();
  while (phases_ && phases_->reported() && std::chrono::steady_clock::now() - start < until_being_ended)
    std::this_thread::sleep_for(std::chrono::milliseconds{100});
}

void JobEnd::alone(const std::string& what, Error::ExitCode cause, Blame blame) {
  const bool single = meeting_.size() == 1;
  const Error::ExitCode code = cause == Error::ExitCode::failure && !single ? Error::ExitCode::peer_failed : cause;
  end_job(single || is_about_input(cause) || blame == Blame::nobody
              ? fmt::format("lockstep: error: {}", what)
              : fmt::format("lockstep: {} failed: {}", name_, what),
          static_cast<int>(code));
}

void JobEnd::end_job(const std::string& line, int code) {
  if (claim_report(phases_)) {
    print_last_line(line, code);
  } else {
    std::this_thread::sleep_for(std::chrono::seconds{1});  // The printing rank ends the job, including this rank.
  }
  group_.abort();
  MpiSession::abort_job(code);
}

void JobEnd::exited(int status) {
  // A rank alone may end as it likes: nobody waits for it.
  if (meeting_.size() == 1) return;
  const int code = status & 0xff;
  end_job(
      fmt::format("lockstep: {} called exit({}) before the end of the job; it was {}", name_, status, meeting_.place()),
      code != 0 ? code : static_cast<int>(Error::ExitCode::peer_failed));
}

void JobEnd::on_exit(int status, void*) {
  JobEnd* const end = current.exchange(nullptr);
  // A process that the program has forked ends without this one.
  if (end && end->process_ == ::getpid()) end->exited(status);
}

void JobEnd::on_terminate() {
  JobEnd* const end = current.exchange(nullptr);
  const std::exception_ptr exception = std::current_exception();
  // This is a second failure on the way out, or not an exception: the default handler is the best that is left.
  if (!end || !exception) std::abort();
  // Nobody is left to be told.
  end->speak();
  // The others may wait for this rank elsewhere, and never come to hear of it.
  end->reports_ = false;
  const Error::ExitCode code = end->after(exception);
  // All ranks know of the failure, and MPI must be left as it is.
  if (!MpiSession::may_call_mpi()) MpiSession::abort_job(static_cast<int>(code));
  end->leave();
  // The stack is not unwound, so nothing is destroyed. MPI ends here, in order, with the other ranks. mpirun ends those
  // that are left when this process has ended, so they come first.
  MpiSession::finalize();
  if (end->phases_) {
    end->phases_->count_finished();
    for (std::chrono::milliseconds waited{0};
         waited < until_others_come && end->phases_->finished() < ranks_on_this_node(); ++waited)
      std::this_thread::sleep_for(std::chrono::milliseconds{1});
  }
  std::_Exit(static_cast<int>(code));
}

}  // namespace lockstep
