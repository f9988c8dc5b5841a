#include "runtime/mpi_session.hpp"

#include <cstdlib>
#include <thread>
#include <utility>

#include <lockstep/base/error.hpp>

#include "comm/mpi/mpi_handle.hpp"

namespace lockstep {

MpiSession::MpiSession(int& argc, char**& argv, std::chrono::duration<double> patience)
    : patience_{patience}, watch_{std::in_place, SiblingWatch::Options{.doing = "starting", .patience = patience}} {
  int initialized = 0;
  check_mpi(MPI_Initialized(&initialized), "MPI_Initialized");
  int provided = MPI_THREAD_SINGLE;
  if (initialized) {
    check_mpi(MPI_Query_thread(&provided), "MPI_Query_thread");
  } else {
    check_mpi(MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided), "MPI_Init_thread");
    owned_ = true;
  }
  if (provided < MPI_THREAD_MULTIPLE)
    throw CommError{
        "this MPI library was started, or built, without MPI_THREAD_MULTIPLE: the watchdog must be able to end the job "
        "while another thread waits in MPI"};
}

MpiSession::~MpiSession() {
  if (owned_) MPI_Finalize();
  if (!phases_) return;
  phases_->count_finished();
  // Not for ever: the watch would end this process.
  while (!have_all_finished()) std::this_thread::sleep_for(std::chrono::milliseconds{1});
}

void MpiSession::ending(std::optional<PhaseTable> phases, const std::vector<int>& ranks_on_node) {
  phases_ = std::move(phases);
  ranks_on_node_ = {ranks_on_node.begin(), ranks_on_node.end()};
  SiblingWatch::Options options{.doing = "ending", .patience = patience_, .known = ranks_on_node_};
  if (phases_) {
    options.table = &*phases_;
    options.may_be_gone = [this] { return have_all_finished(); };
  }
  watch_.emplace(std::move(options));
}

void MpiSession::abort_job(int code) {
  int initialized = 0;
  int finalized = 0;
  MPI_Initialized(&initialized);
  MPI_Finalized(&finalized);
  // MPI_Abort waits for an answer of mpirun or its daemon, which may be stuck itself.
  std::thread{[code] {
    std::this_thread::sleep_for(std::chrono::seconds{5});
    std::_Exit(code);
  }}.detach();
  if (initialized && !finalized) MPI_Abort(MPI_COMM_WORLD, code);
  std::_Exit(code);
}

}  // namespace lockstep
