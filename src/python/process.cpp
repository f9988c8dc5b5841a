#include "python/process.hpp"

#include <array>
#include <cstdint>
#include <numeric>
#include <span>

#include <fmt/format.h>
#include <mpi.h>
#include <unistd.h>

#include <lockstep/core/base/error.hpp>

#include "core/control/phase_table.hpp"
#include "python/completions.hpp"
#include "python/desk.hpp"
#include "python/mail.hpp"
#include "python/place.hpp"
#include "python/store_server.hpp"

namespace lockstep::python {
namespace {

Process* of_process = nullptr;

bool mpi_has_been_started() {
  int initialized = 0;
  MPI_Initialized(&initialized);
  return initialized != 0;
}

Runtime make_runtime(const RuntimeOptions& options) {
  if (mpi_has_been_started()) return Runtime{options};
  std::array<char, 7> name{"python"};
  std::array<char*, 2> arguments{name.data(), nullptr};
  int count = 1;
  char** given = arguments.data();
  return Runtime{count, given, options};
}

int on_finalize(MPI_Comm, int, void*, void*) {
  of_process->end_messages();
  return MPI_SUCCESS;
}

/// MPI_Finalize begins by freeing what is attached to this communicator, the last first.
void end_messages_before_mpi() {
  int hook = MPI_KEYVAL_INVALID;
  MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, on_finalize, &hook, nullptr);
  MPI_Comm_set_attr(MPI_COMM_SELF, hook, nullptr);
}

void require_all_threads() {
  int provided = MPI_THREAD_SINGLE;
  MPI_Query_thread(&provided);
  if (provided < MPI_THREAD_MULTIPLE)
    throw ConfigError{
        "this MPI lets one thread alone call it, or the program has started it so; expected MPI_THREAD_MULTIPLE, which "
        "requests need to go on while Python does something else"};
}

}  // namespace

Process::Process(const RuntimeOptions& options)
    : process_{::getpid()},
      stall_timeout_{options.stall_timeout},
      on_stall_{options.on_stall},
      runtime_{make_runtime(options)} {}

void Process::open() {
  completions_ = std::make_unique<Completions>();
  store_server_ = std::make_unique<StoreServer>();
  mail_ = std::make_unique<Mail>();
  desk_ = std::make_unique<Desk>();
  store_server_->open_at(*desk_);
  mail_->open_at(*desk_);
  desk_->open();
}

Process& Process::start(std::chrono::duration<double> stall_timeout, RuntimeOptions::OnStall on_stall) {
  require_own();
  if (!of_process) of_process = new Process{{.device = "cpu", .stall_timeout = stall_timeout, .on_stall = on_stall}};
  if (of_process->desk_) return *of_process;
  // Not before it is kept: a runtime that an exception destroys tells the other ranks less than Python does.
  require_all_threads();
  of_process->open();
  end_messages_before_mpi();
  return *of_process;
}

Process* Process::current() {
  return of_process;
}

bool Process::is_of_parent() {
  return of_process && of_process->process_ != ::getpid();
}

void Process::require_own() {
  if (is_of_parent())
    throw InvalidArgument{fmt::format(
        "process {}, which a rank of the job has forked, calls lockstep{}; expected only the rank itself, process {}",
        ::getpid(), bracketed(place_of_call()), of_process->process_)};
}

std::vector<int> Process::all_ranks() const {
  std::vector<int> all(static_cast<std::size_t>(size()));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

MadeGroup Process::make_group(const std::vector<int>& ranks, const Here& here) {
  if (ranks.empty()) return {runtime_.group()};
  const Group group = groups_.emplace_back(runtime_.group().anywhere().subset(ranks, here));
  if (group.size() == 1) return {group};
  const bool is_shown = groups_shown_ < PhaseTable::groups_shown;
  if (is_shown) ++groups_shown_;
  // A rank that does not show the group is never found to be late there, so all must.
  std::array<std::int64_t, 1> shown{is_shown ? 1 : 0};
  group.anywhere().all_reduce(std::span{shown}, here);
  return {group, shown.front() == group.size()};
}

std::string Process::end_python() {
  return completions_ ? completions_->stop() : std::string{};
}

void Process::end_messages() {
  desk_->close();
}

}  // namespace lockstep::python
