#include "job/runtime/mpi_session.hpp"

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <ctime>
#include <exception>
#include <new>
#include <numeric>
#include <string>
#include <thread>
#include <utility>

#include <dlfcn.h>
#include <fmt/format.h>
#include <link.h>
#include <sys/resource.h>
#include <unistd.h>

#include <lockstep/core/base/error.hpp>

#include "core/base/inherited_signals.hpp"
#include "core/cluster/launch.hpp"
#include "core/comm/mpi/mpi_handle.hpp"
#include "core/comm/mpi/mpi_library.hpp"
#include "job/runtime/inherited_state.hpp"
#include "job/runtime/launcher.hpp"
#include "job/runtime/siblings.hpp"

namespace lockstep {
namespace {

// How much longer than the stall timeout to wait for ranks of other nodes. While MPI starts, a slow rank is likelier
// than the end of a node. When MPI ends, their own nodes get this long to name one that fails.
constexpr std::chrono::duration<double> for_start_elsewhere{20};
constexpr std::chrono::duration<double> for_end_elsewhere{2};

/// Whether MPI may be called from one thread only: less than MPI_THREAD_MULTIPLE.
std::atomic<bool> one_thread_calls = false;

/// On the thread that has started MPI, or made the runtime in a program that had.
thread_local bool calls_mpi = false;

/// With too few descriptors MPI ends the process by itself, or crashes, and neither says a line of ours.
void require_descriptors() {
  constexpr rlim_t fewest = 64;  // Open MPI alone, on one node, needs up to 32
  rlimit limit = {};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= fewest) return;
  throw ConfigError{fmt::format("this process may open {} files (ulimit -n); expected at least {}, which MPI needs",
                                limit.rlim_cur, fewest)};
}

/// Nor without its shared memory: Open MPI's ranks then end each other, or wait for each other for ever.
void require_file_sizes() {
  constexpr rlim_t smallest = rlim_t{5} << 20;  // Open MPI's segments have 4 MiB and a header
  rlimit limit = {};
  if (::getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur >= smallest) return;
  throw ConfigError{
      fmt::format("this process may make files of {} bytes (ulimit -f); expected at least {}, which MPI "
                  "needs for its shared memory",
                  limit.rlim_cur, smallest)};
}

thread_local bool thread_aborts = false;

/// Whether calls of MPI_Abort take long: DelayedAbort.
std::atomic<bool> aborts_late = false;

/// Open MPI 5 ends the job, with a code of its own, as soon as a connection to another host breaks. While it starts, an
/// object of this class makes it wait until somebody can say whose rank is gone. It waits in our own MPI_Abort too.
class DelayedAbort {
 public:
  DelayedAbort()
      : is_mine_{mpi_kind_of(mpi_library()) == MpiKind::open_mpi_5 && nearest_launcher() == LauncherKind::open_mpi &&
                 ranks_if_all_are_here().empty() && std::getenv(variable) == nullptr} {
    if (!is_mine_) return;
    ::setenv(variable, "5", 1);
    aborts_late = true;
  }
  DelayedAbort(const DelayedAbort&) = delete;
  ~DelayedAbort() {
    if (is_mine_) ::unsetenv(variable);
  }

 private:
  static constexpr const char* variable = "OMPI_MCA_opal_abort_delay";
  bool is_mine_;
};

/// From here on no library that is loaded now is unloaded.
void keep_libraries_loaded() {
  std::vector<std::string> names;
  // To be opened afterwards: the list is locked while it is read.
  const auto add_name = [](dl_phdr_info* info, std::size_t, void* list) {
    try {
      if (info->dlpi_name[0] == '/') static_cast<std::vector<std::string>*>(list)->emplace_back(info->dlpi_name);
      return 0;
    } catch (const std::bad_alloc&) {
      return 1;
    }
  };
  ::dl_iterate_phdr(add_name, &names);
  for (const std::string& name : names) (void)::dlopen(name.c_str(), RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
}

/// A timer of the kernel's that sends `event` once, after `time`. False if it has none left.
bool set_timer(sigevent event, std::chrono::duration<double> time) {
  timer_t timer = {};
  if (::timer_create(CLOCK_MONOTONIC, &event, &timer) != 0) return false;
  constexpr std::chrono::hours longest{24};
  itimerspec once = {};
  once.it_value.tv_sec =
      std::chrono::ceil<std::chrono::seconds>(std::min<std::chrono::duration<double>>(time, longest)).count();
  return ::timer_settime(timer, 0, &once, nullptr) == 0;
}

std::atomic<int> code_of_late_end{0};

/// Ends this process after `time`, wherever this thread is by then. It needs no thread: there may be none left. A
/// signal of this thread's own reaches it even if the main thread is in a system call that does not return.
void end_process_after(std::chrono::seconds time, int code) {
  code_of_late_end = code;
  struct sigaction action = {};
  action.sa_handler = [](int) { ::_exit(code_of_late_end); };
  ::sigaction(SIGALRM, &action, nullptr);
  sigset_t alarm;
  sigemptyset(&alarm);
  sigaddset(&alarm, SIGALRM);
  ::pthread_sigmask(SIG_UNBLOCK, &alarm, nullptr);
  sigevent event = {};
  event.sigev_notify = SIGEV_THREAD_ID;
  event.sigev_signo = SIGALRM;
  event._sigev_un._tid = ::gettid();
  if (!set_timer(event, time)) ::alarm(static_cast<unsigned>(time.count()));
}

/// If this process stops after this, mpirun waits for it, and nobody is left to name it. The kernel continues it, once,
/// after `time`: a timer's SIGCONT reaches a process that has stopped, and does nothing to one that runs.
void be_continued_after(std::chrono::duration<double> time) {
  sigevent continuation = {};
  continuation.sigev_notify = SIGEV_SIGNAL;
  continuation.sigev_signo = SIGCONT;
  (void)set_timer(continuation, time);
}

}  // namespace

MpiSession::MpiSession(int& argc, char**& argv, const RuntimeOptions& options)
    : patience_{options.stall_timeout}, on_stall_{options.on_stall}, is_launched_{rank_from_launcher().has_value()} {
  const bool initialized = has_been_started();
  if (options.communicator) {
    if (!initialized)
      throw InvalidArgument{"RuntimeOptions::communicator in a program that has not started MPI; expected MPI_Init"};
    world_ranks_ = world_ranks_of(*options.communicator, "RuntimeOptions::communicator");
  } else {
    // A guest's program has divided the ranks of its job itself, and so has seen them.
    refuse_foreign_launch();
    require_descriptors();
    require_stack();
    if (!initialized) require_file_sizes();
    // MPI writes to the connection of a rank that has just died. That must not end this rank before it names the other.
    let_writes_fail();
  }
  watch_.emplace(SiblingWatch::Options{.doing = "starting",
                                       .patience = patience_,
                                       .for_other_nodes = for_start_elsewhere,
                                       .on_stall = on_stall_,
                                       .only = {world_ranks_.begin(), world_ranks_.end()},
                                       .signals = kept_by(options)});
  int provided = MPI_THREAD_SINGLE;
  if (initialized) {
    check_mpi(MPI_Query_thread(&provided), "MPI_Query_thread");
  } else {
    const bool any = options.mpi_threads == RuntimeOptions::MpiThreads::any;
    ::setenv("IPATH_NO_BACKTRACE", "1", 0);  // else libinfinipath, which libfabric loads, takes our signals
    const DelayedAbort while_it_starts;
    check_mpi(MPI_Init_thread(&argc, &argv, any ? MPI_THREAD_MULTIPLE : MPI_THREAD_FUNNELED, &provided),
              "MPI_Init_thread");
    owned_ = true;
  }
  require_not_spawned();
  take_level(options.mpi_threads == RuntimeOptions::MpiThreads::main ? std::min<int>(provided, MPI_THREAD_FUNNELED)
                                                                     : provided);
  if (!options.communicator) refuse_foreign_launch();
}

bool MpiSession::has_been_started() {
  int initialized = 0;
  int finalized = 0;
  check_mpi(MPI_Initialized(&initialized), "MPI_Initialized");
  check_mpi(MPI_Finalized(&finalized), "MPI_Finalized");
  if (finalized) throw ContextError{"a Runtime after MPI_Finalize; expected it before, as MPI cannot start again"};
  return initialized != 0;
}

std::vector<int> MpiSession::world_ranks_of(int handle, std::string_view what) {
  const MPI_Comm communicator = MPI_Comm_f2c(handle);
  int is_between = 0;
  if (communicator != MPI_COMM_NULL) check_mpi(MPI_Comm_test_inter(communicator, &is_between), "MPI_Comm_test_inter");
  if (communicator == MPI_COMM_NULL || is_between)
    throw InvalidArgument{fmt::format("{} is {}; expected an intracommunicator", what,
                                      is_between ? "an intercommunicator" : "MPI_COMM_NULL")};
  MPI_Group world = MPI_GROUP_NULL;
  MPI_Group own = MPI_GROUP_NULL;
  int size = 0;
  check_mpi(MPI_Comm_group(MPI_COMM_WORLD, &world), "MPI_Comm_group");
  check_mpi(MPI_Comm_group(communicator, &own), "MPI_Comm_group");
  check_mpi(MPI_Group_size(own, &size), "MPI_Group_size");
  std::vector<int> ranks(static_cast<std::size_t>(size)), world_ranks(ranks.size());
  std::iota(ranks.begin(), ranks.end(), 0);
  check_mpi(MPI_Group_translate_ranks(own, size, ranks.data(), world, world_ranks.data()), "MPI_Group_translate_ranks");
  check_mpi(MPI_Group_free(&own), "MPI_Group_free");
  check_mpi(MPI_Group_free(&world), "MPI_Group_free");
  // Of processes that MPI_Comm_spawn has started, say.
  if (std::ranges::find(world_ranks, MPI_UNDEFINED) != world_ranks.end())
    throw InvalidArgument{fmt::format("{} has ranks outside of MPI_COMM_WORLD; expected a part of that", what)};
  return world_ranks;
}

/// LOCAL. The launcher gives such processes the numbers of others over again, and tells nobody that one has ended.
void MpiSession::require_not_spawned() {
  MPI_Comm parent = MPI_COMM_NULL;
  check_mpi(MPI_Comm_get_parent(&parent), "MPI_Comm_get_parent");
  if (parent != MPI_COMM_NULL)
    throw ContextError{
        "a Runtime in a process that MPI_Comm_spawn has started; expected one that MPI's launcher has started"};
}

void MpiSession::take_level(int provided) {
  // With MPI_THREAD_SERIALIZED a thread that waits in MPI would be in the way of all others.
  one_thread_calls = provided < MPI_THREAD_MULTIPLE;
  int is_main = 1;
  if (provided < MPI_THREAD_SERIALIZED) check_mpi(MPI_Is_thread_main(&is_main), "MPI_Is_thread_main");
  if (!is_main)
    throw ConfigError{
        "the runtime was made on another thread than MPI was started on, which is the only one that may call this MPI "
        "(MPI_THREAD_FUNNELED); expected the same thread"};
  calls_mpi = true;
}

bool MpiSession::may_call_mpi() {
  return calls_mpi || !one_thread_calls;
}

bool MpiSession::all_threads_may_call_mpi() {
  return !one_thread_calls;
}

MpiSession::~MpiSession() {
  // An exception that the other ranks do not know of: they would not come to the end of MPI.
  if (std::uncaught_exceptions() > 0 && !is_ending_) return;
  end();
}

void MpiSession::end() noexcept {
  if (std::exchange(has_ended_, true)) return;
  ended_own_ = true;
  if (!is_guest()) {
    if (owned_) finalize();
    // While others still watch, they name a rank that stops.
    if (is_launched_) be_continued_after(patience_ + for_end_elsewhere);
    if (phases_) phases_->count_finished();
    // Not for ever: the watch would end this process. Many ranks that look often would hold up those that still end.
    const std::chrono::microseconds between_looks{1000 + 100 * ranks_on_node_.size()};
    while (phases_ && !have_all_finished()) std::this_thread::sleep_for(between_looks);
  }
  watch_.reset();
}

void MpiSession::finalize() noexcept {
  // Open MPI 4.1 unloads its PMIx plug-in before it stops the thread that runs the plug-in's callbacks. On a busy
  // machine that thread may run one late, and would crash (open-mpi/ompi#10117).
  keep_libraries_loaded();
  MPI_Finalize();
}

void MpiSession::ending(std::optional<PhaseTable> phases, const std::vector<int>& ranks_on_node) {
  is_ending_ = true;
  phases_ = std::move(phases);
  ranks_on_node_ = {ranks_on_node.begin(), ranks_on_node.end()};
  SiblingWatch::Options options{.doing = "ending",
                                .patience = patience_,
                                .for_other_nodes = for_end_elsewhere,
                                .on_stall = on_stall_,
                                .known = ranks_on_node_};
  if (phases_) options.table = &*phases_;
  // A GPU's driver may not return from a call that gives something back.
  options.is_late = [this] { return !ended_own_; };
  // Without a table nobody waits for the others after MPI has ended here.
  options.may_be_gone = [this] { return !phases_ || have_all_finished(); };
  watch_->resume(std::move(options));
}

void MpiSession::abort_job(int code) {
  thread_aborts = true;
  try {
    let_launcher_read();
    if (!may_call_mpi()) end_siblings_like_launcher(SiblingsToEnd::stopped);
  } catch (const std::exception&) {  // no memory to look for the launcher
  }
  if (!may_call_mpi()) std::_Exit(code);
  int initialized = 0;
  int finalized = 0;
  MPI_Initialized(&initialized);
  MPI_Finalized(&finalized);
  if (aborts_late) std::_Exit(code);  // mpirun ends the others because of that
  // MPI_Abort waits for an answer of mpirun or its daemon, which may be stuck itself.
  end_process_after(std::chrono::seconds{5}, code);
  if (initialized && !finalized) MPI_Abort(MPI_COMM_WORLD, code);
  std::_Exit(code);
}

bool MpiSession::is_aborting() {
  return thread_aborts;
}

}  // namespace lockstep
