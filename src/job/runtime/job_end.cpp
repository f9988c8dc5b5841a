#include "job/runtime/job_end.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <initializer_list>
#include <new>
#include <utility>

#include <fmt/format.h>

#include "core/base/awake_clock.hpp"
#include "core/base/exit_code.hpp"
#include "core/base/open_line.hpp"
#include "core/comm/mpi/mpi_handle.hpp"
#include "core/control/exceptions.hpp"
#include "core/watch/report_claim.hpp"
#include "job/runtime/siblings.hpp"

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

/// The other ranks are told of it even if there is no memory for the sentence.
std::exception_ptr unknown_exception() {
  try {
    return std::make_exception_ptr(Error{"it left the runtime with an exception"});
  } catch (...) {
    return std::current_exception();
  }
}

}  // namespace

JobEnd::JobEnd(Job& job, std::string name, const RuntimeOptions& options, MpiSession& session,
               std::function<void(EndOfMpi)> end_runtime)
    : job_{job},
      meeting_{job.meeting()},
      name_{std::move(name)},
      is_guest_{options.communicator.has_value()},
      reports_{options.on_failure == RuntimeOptions::OnFailure::report},
      speaks_{!reports_},
      session_{session},
      end_runtime_{std::move(end_runtime)},
      previous_{std::set_terminate(on_terminate)} {
  current = this;
  MpiComm::set_ranks_leave(false);
  // MPI_Finalize begins by freeing what is attached to this communicator, while MPI still works.
  if (MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, on_finalize, &finalize_hook_, nullptr) == MPI_SUCCESS)
    (void)MPI_Comm_set_attr(MPI_COMM_SELF, finalize_hook_, nullptr);
  // Unlike atexit it hands over the status. It cannot be taken back, and without a current object does nothing.
  static const int installed = ::on_exit(on_exit, nullptr);
  (void)installed;
}

JobEnd::~JobEnd() {
  current = nullptr;
  int is_over = 0;
  MPI_Finalized(&is_over);
  if (!is_over && finalize_hook_ != MPI_KEYVAL_INVALID) {
    (void)MPI_Comm_delete_attr(MPI_COMM_SELF, finalize_hook_);
    (void)MPI_Comm_free_keyval(&finalize_hook_);
  }
  // The program may have set another one since.
  if (std::get_terminate() == on_terminate) std::set_terminate(previous_);
}

bool JobEnd::exists() {
  return current != nullptr;
}

Error::ExitCode JobEnd::after(const std::exception_ptr& exception) noexcept {
  try {
    return settle(exception);
  } catch (...) {
    return end_shortly(exception);
  }
}

Error::ExitCode JobEnd::settle(const std::exception_ptr& exception) {
  if (!job_.known(exception)) announce(exception);
  const auto failure = job_.known(exception);
  if (!failure)
    alone(told(exception), exit_code_of(exception), is_common_stall(exception) ? Blame::nobody : Blame::this_rank);
  const bool all_know = failure == meeting_.failure();
  // The others may be anywhere.
  if (!all_know && speaks_) end_for_all(*failure);
  if (!reports_ && is_guest_) end_for_all(*failure);
  if (all_know) say(*failure);
  return failure->code;
}

void JobEnd::after_unknown() noexcept {
  try {
    if (const auto failure = job_.last_known()) {
      settle(std::exception_ptr{failure->exception});
    } else if (reports_) {
      settle(unknown_exception());
    } else {
      alone("it left with an exception", Error::ExitCode::failure);
    }
  } catch (...) {
    (void)end_shortly(std::current_exception());
  }
}

/// There is no memory for a whole line. Returns the exit code if another rank has had it.
Error::ExitCode JobEnd::end_shortly(const std::exception_ptr& exception) {
  std::array<char, 1024> line;
  const auto fill = [&](std::initializer_list<std::string_view> pieces) {
    std::size_t size = 0;
    for (const std::string_view piece : pieces)
      size += piece.substr(0, line.size() - size).copy(line.data() + size, line.size() - size);
    return std::string_view{line.data(), size};
  };
  int code = static_cast<int>(Error::ExitCode::failure);
  std::string_view told;
  try {
    std::rethrow_exception(exception);
  } catch (const std::bad_alloc&) {
    told = fill({"lockstep: ", name_, " failed: no memory is left"});
  } catch (const std::exception& error) {
    code = static_cast<int>(exit_code_of(error));
    told = fill({"lockstep: ", name_, " failed: ", error.what()});
  } catch (...) {
    told = fill({"lockstep: ", name_, " failed"});
  }
  if (meeting_.size() > 1) {
    if (code == static_cast<int>(Error::ExitCode::failure)) code = static_cast<int>(Error::ExitCode::peer_failed);
    // The others may have learned of the failure before this rank ran out of memory.
    std::this_thread::sleep_for(until_others_come);
  }
  if (!is_last_line_out()) end_job(told, code);
  return Error::ExitCode{code};
}

/// The first of the ranks that know speaks, and the job ends with it.
void JobEnd::end_for_all(const AgreedFailure& failure) {
  if (!failure.is_first) std::this_thread::sleep_for(until_chief_has_spoken);
  end_job(failure.line, static_cast<int>(failure.code));
}

std::string JobEnd::told(const std::exception_ptr& exception) const {
  const std::string what = message_of(exception);
  if (!is_of_program(exception)) return what;
  return fmt::format("{}; {} was {}", what, meeting_.size() == 1 ? "this" : "it", job_.place());
}

/// If all ranks come with a failure, none of them is to blame.
void JobEnd::announce(const std::exception_ptr& exception) {
  // After a data collective that failed, or on another thread, this rank cannot meet the others.
  if (job_.has_failed() || std::this_thread::get_id() != thread_) return;
  if (!reports_)
    session_.set_deadline(until_others_come, [this, &exception] {
      try {
        alone(told(exception), exit_code_of(exception));
      } catch (...) {
        (void)end_shortly(exception);
      }
    });
  try {
    meeting_.fail(exception);
  } catch (...) {
    // Job::known says what came of it.
  }
  session_.clear_deadline();
}

void JobEnd::say(const AgreedFailure& failure) {
  // A job that is interrupted may say so first, and then it stops too late.
  const bool speaks = speaks_ && meeting_.rank() == 0 && !said_;
  if (speaks &&
      (failure.code != Error::ExitCode::stopped || is_guest_ || claim_report(phases_, static_cast<int>(failure.code))))
    print_last_line(failure.line, static_cast<int>(failure.code));
  said_ = true;
}

void JobEnd::leave() noexcept {
  if (has_left_) return;
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
  has_left(was_stopped);
}

void JobEnd::has_left(bool was_stopped) {
  has_left_ = true;
  job_.progress().stop();
  MpiComm::set_ranks_leave(true);
  // A job that was stopped has its line from replica 0, which ends in order.
  if (!was_stopped) wait_if_being_ended();
  if (phases_) phases_->enter(Phase::leaving);
}

/// mpirun continues a stopped rank before it ends it, so the last agreement may go through after a watchdog has
/// reported. mpirun 4.1 crashes or hangs if ranks then begin to end MPI, as it clears its tables.
void JobEnd::wait_if_being_ended() const {
  const auto start = AwakeClock::now();
  while (phases_ && phases_->reported() && AwakeClock::now() - start < until_being_ended)
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

void JobEnd::end_job(std::string_view line, int code) {
  if (claim_report(phases_, code)) {
    print_last_line(line, code);
    std::this_thread::sleep_for(until_line_is_known_);
  } else {
    std::this_thread::sleep_for(std::chrono::seconds{1});  // The printing rank ends the job, including this rank.
    if (phases_) code = phases_->code_of_report(code);
  }
  job_.abort();
  MpiSession::abort_job(code);
}

bool JobEnd::may_meet() const {
  const auto is_outside = [](const MeetingPoint* each) { return each->depth() == 0; };
  return std::this_thread::get_id() == thread_ && !job_.has_failed() &&
         std::ranges::all_of(job_.meetings(), is_outside);
}

void JobEnd::retire(EndOfMpi end_of_mpi) {
  is_retired_ = true;
  end_runtime_(end_of_mpi);
}

/// Whether all ranks have left the job. If they know that this one ends it, does not return.
bool JobEnd::exit_with_others(const std::string& what, Error::ExitCode code) {
  std::exception_ptr failed;
  try {
    meeting_.exit_job(Here::current(), what, code);
  } catch (...) {
    failed = std::current_exception();
  }
  session_.clear_deadline();
  if (!failed) {
    has_left(false);
    return true;
  }
  // A guest's failure ends the whole job, and where failures are reported, this rank does not wait for that.
  if (!job_.known(failed) || is_guest_ || reports_) return false;
  const int agreed = static_cast<int>(meeting_.failure()->code);
  say(*meeting_.failure());
  leave();
  retire(EndOfMpi::runtime);
  (void)std::fflush(nullptr);
  std::_Exit(agreed);
}

void JobEnd::exited(int status) {
  const int code = (status & 0xff) != 0 ? status & 0xff : static_cast<int>(Error::ExitCode::peer_failed);
  const std::string what = fmt::format("called exit({}) before the end of the job", status);
  const auto end_alone = [&] {
    try {
      end_job(fmt::format("lockstep: {} {}; it was {}", name_, what, job_.place()), code);
    } catch (...) {
      (void)end_shortly(std::current_exception());
    }
  };
  if (may_meet()) {
    // The end of a job that has gone well may have to wait for a rank that still writes what it has made.
    if (status != 0) session_.set_deadline(until_others_come, std::ref(end_alone));
    if (exit_with_others(what, static_cast<Error::ExitCode>(code))) return retire(EndOfMpi::runtime);
  }
  // A rank alone may end as it likes: nobody waits for it.
  if (meeting_.size() > 1) end_alone();
}

void JobEnd::finalized() {
  if (!may_meet()) alone("MPI_Finalize was called before the end of the Runtime", Error::ExitCode::failure);
  leave();
  retire(EndOfMpi::program);
}

void JobEnd::on_exit(int status, void*) {
  JobEnd* const end = current.load();
  // A process that the program has forked ends without this one. MPICH's MPI_Abort calls exit.
  if (!end || end->process_ != ::getpid() || end->is_retired_ || end->gives_way_ || MpiSession::is_aborting()) return;
  current = nullptr;
  try {
    end->exited(status);
  } catch (...) {
    (void)end->end_shortly(std::current_exception());
  }
}

int JobEnd::on_finalize(MPI_Comm, int, void*, void*) {
  JobEnd* const end = current.load();
  if (end && end->process_ == ::getpid() && !end->is_retired_ && !end->gives_way_) end->finalized();
  return MPI_SUCCESS;
}

void JobEnd::on_terminate() {
  JobEnd* const end = current.exchange(nullptr);
  const std::exception_ptr exception = std::current_exception();
  // This is a second failure on the way out, or not an exception: the default handler is the best that is left.
  if (!end || !exception) std::abort();
  if (end->is_retired_) {
    print_last_line("lockstep: error: " + message_of(exception), static_cast<int>(exit_code_of(exception)));
    std::_Exit(static_cast<int>(exit_code_of(exception)));
  }
  end->because_of(exception);
}

void JobEnd::because_of(const std::exception_ptr& exception) {
  // Nobody is left to be told.
  speak();
  // The others may wait for this rank elsewhere, and never come to hear of it.
  reports_ = false;
  const Error::ExitCode code = after(exception);
  // All ranks know of the failure, and MPI must be left as it is.
  if (!MpiSession::may_call_mpi()) MpiSession::abort_job(static_cast<int>(code));
  leave();
  // The stack is not unwound, so nothing is destroyed. MPI ends here, in order, with the other ranks. mpirun ends those
  // that are left when this process has ended, so they come first.
  MpiSession::finalize();
  if (phases_) {
    phases_->count_finished();
    for (std::chrono::milliseconds waited{0}; waited < until_others_come && phases_->finished() < ranks_on_this_node();
         ++waited)
      std::this_thread::sleep_for(std::chrono::milliseconds{1});
  }
  std::_Exit(static_cast<int>(code));
}

}  // namespace lockstep
