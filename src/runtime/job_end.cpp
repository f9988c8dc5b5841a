#include "runtime/job_end.hpp"

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <thread>

#include <fmt/format.h>
#include <unistd.h>

#include "comm/mpi/mpi_handle.hpp"
#include "control/report_claim.hpp"
#include "runtime/mpi_session.hpp"

namespace lockstep {
namespace {

// A terminate handler can reach only globals.
std::atomic<JobEnd*> current{nullptr};

}  // namespace

void print_line(std::string line) {
  line += '\n';
  (void)!::write(STDERR_FILENO, line.data(), line.size());
}

JobEnd::JobEnd(ReplicaGroup& group, std::string name)
    : group_{group}, meeting_{group.meeting()}, name_{std::move(name)}, previous_{std::set_terminate(on_terminate)} {
  current = this;
}

JobEnd::~JobEnd() {
  current = nullptr;
  std::set_terminate(previous_);
}

ExitCode JobEnd::after(const std::exception_ptr& exception) {
  const auto& failure = meeting_.failure();
  if (!failure || failure->exception != exception) alone(message_of(exception), exit_code_of(exception));
  say(*failure);
  return failure->code;
}

void JobEnd::say(const AgreedFailure& failure) {
  if (meeting_.rank() == 0 && !said_) print_line(failure.line);
  said_ = true;
}

void JobEnd::leave() noexcept {
  for (bool all_here = false; !all_here;) {
    const auto last = meeting_.failure();
    try {
      // Replica 0 may have ignored the verdict that another rank leaves with, if nothing came after it.
      const bool because_of_last = meeting_.leave_job(Here::current(), said_);
      if (because_of_last && last) say(*last);
      all_here = true;
    } catch (...) {
      (void)after(std::current_exception());
    }
  }
  if (phases_) phases_->enter(Phase::leaving);
}

void JobEnd::alone(const std::string& what, ExitCode cause) {
  const bool single = meeting_.size() == 1;
  if (claim_report(phases_)) {
    print_line(single || cause == ExitCode::user_input ? fmt::format("lockstep: error: {}", what)
                                                       : fmt::format("lockstep: {} failed: {}", name_, what));
  } else {
    std::this_thread::sleep_for(std::chrono::seconds{1});  // Whoever prints ends the job, including this rank.
  }
  const ExitCode code = cause == ExitCode::failure && !single ? ExitCode::peer_failed : cause;
  group_.abort();
  MpiSession::abort_job(static_cast<int>(code));
}

void JobEnd::on_terminate() {
  JobEnd* const end = current.exchange(nullptr);
  const std::exception_ptr exception = std::current_exception();
  // This is a second failure on the way out, or not an exception: the default handler is the best that is left.
  if (!end || !exception) std::abort();
  const ExitCode code = end->after(exception);
  end->leave();
  // The stack is not unwound, so nothing is destroyed. MPI ends here, in order, with the other ranks.
  MpiSession::finalize();
  std::_Exit(static_cast<int>(code));
}

}  // namespace lockstep
