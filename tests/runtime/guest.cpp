// A program with an MPI of its own, and runtimes as guests: `guest MODE RANK [COUNT]`, where RANK, of MPI_COMM_WORLD,
// is the one that misbehaves. Even and odd ranks have a runtime each, and all of them messages of the program's.
#include <algorithm>
#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <mpi.h>
#include <unistd.h>

#include <lockstep/training.hpp>

#include "support/next_function.hpp"

using namespace lockstep;
using lockstep::test::next;

extern char** environ;

namespace {

struct Program {
  std::string mode;
  int rank = 0, size = 0;
  bool mine = false;  ///< whether this rank misbehaves
  MPI_Comm part = MPI_COMM_NULL;
  int errors = 0;         ///< that MPI told the program's own handler
  int communicators = 0;  ///< that are not freed

  RuntimeOptions options() const {
    RuntimeOptions options{.device = "cpu", .stall_timeout = std::chrono::seconds{mode == "stop" ? 1 : 20}};
    options.communicator = MPI_Comm_c2f(part);
    if (mode.starts_with("report")) options.on_failure = RuntimeOptions::OnFailure::report;
    return options;
  }
} program;

void require(bool holds, const std::string& what) {
  if (!holds) throw std::runtime_error{"expected " + what};
}

void on_mpi_error(MPI_Comm*, int*, ...) {
  ++program.errors;
}

/// What a guest must leave as it is.
struct Process {
  std::vector<std::string> variables;
  std::vector<void (*)(int)> handlers;
  std::terminate_handler terminate = std::get_terminate();
  std::ptrdiff_t threads = entries("/proc/self/task");
  std::ptrdiff_t files = entries("/proc/self/fd");
  int communicators = program.communicators;
  MPI_Errhandler errors = MPI_ERRHANDLER_NULL;

  Process() {
    for (char** each = environ; *each; ++each) variables.emplace_back(*each);
    for (int signal = 1; signal < SIGRTMAX; ++signal) {
      struct sigaction now = {};
      ::sigaction(signal, nullptr, &now);
      handlers.push_back(now.sa_handler);
    }
    MPI_Comm_get_errhandler(MPI_COMM_WORLD, &errors);
  }

  static std::ptrdiff_t entries(const char* folder) {
    return std::distance(std::filesystem::directory_iterator{folder}, {});
  }

  void require_same_outside(const Process& other) const {
    require(variables == other.variables, "the environment as before");
    require(handlers == other.handlers, "the handlers of signals as before");
  }

  void require_same(const Process& other) const {
    require_same_outside(other);
    require(terminate == other.terminate, "the terminate handler as before");
    require(threads == other.threads, "the threads as before");
    require(files == other.files, "the open files as before");
    require(communicators == other.communicators, "no communicator more than before");
    require(errors == other.errors, "the program's handler of MPI's errors");
    require(program.errors == 0, "no error for it");
  }
};

int count(int result, const MPI_Comm* made) {
  if (*made != MPI_COMM_NULL) ++program.communicators;
  return result;
}

/// The program's own message, round all ranks.
void pass_on(int tag) {
  int from = -1;
  const int to = (program.rank + 1) % program.size, before = (program.rank + program.size - 1) % program.size;
  MPI_Sendrecv(&program.rank, 1, MPI_INT, to, tag, &from, 1, MPI_INT, before, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  require(from == before, "the message of the rank before");
}

/// The same sum over the world ranks of a part, in several ways.
void train(Runtime& runtime) {
  int sum = 0;
  for (int rank = program.rank % 2; rank < program.size; rank += 2) sum += rank;
  Strategy& strategy = runtime.strategy();
  const auto weight = strategy.create_variable({.name = "w"}, [] { return Tensor::scalar(0.f); });
  strategy.seal();
  for (int step = 0; step < 3; ++step) {
    pass_on(step);
    strategy.run([&](ReplicaContext& context) {
      const auto mine = static_cast<double>(program.rank);
      require(context.all_reduce(ReduceOp::sum, mine) == sum, "the sum of this part's ranks");
    });
  }
}

/// Two groups of a guest, one of them over a communicator of the program's, in another order.
void use_groups(Runtime& runtime) {
  MPI_Comm turned = MPI_COMM_NULL;
  MPI_Comm_split(program.part, 0, -program.rank, &turned);
  Group all = runtime.group(), other = runtime.group(MPI_Comm_c2f(turned));
  MPI_Comm_free(&turned);
  require(other.rank() == all.size() - 1 - all.rank(), "the order of the communicator");
  int sum = 0;
  for (int rank = program.rank % 2; rank < program.size; rank += 2) sum += rank;
  int of_all[] = {program.rank}, of_other[] = {program.rank}, first[] = {program.rank};
  Group::Request one = all.submit_all_reduce(std::span{of_all}), two = other.submit_all_reduce(std::span{of_other});
  other.broadcast(std::span{first}, other.size() - 1);
  two.wait();
  one.wait();
  require(of_all[0] == sum && of_other[0] == sum, "the sums of this part's ranks");
  require(first[0] == program.rank % 2, "what the first of this part's ranks has");
}

/// The launcher that was called on this host: this process's parent, or that of MPICH's proxy.
pid_t launcher() {
  std::string status;  // "12 (a name) S 10 …"
  std::getline(std::ifstream{"/proc/" + std::to_string(::getppid()) + "/stat"}, status);
  return status.find("(hydra_pmi_proxy)") == std::string::npos ? ::getppid()
                                                               : std::atoi(status.c_str() + status.rfind(')') + 4);
}

void fail(Runtime& runtime, const std::string& how) {
  Strategy& strategy = runtime.strategy();
  if (how == "differs") (void)strategy.same_on_all(program.mine ? 2 : 1);
  if (how == "interrupted" && program.mine) (void)::kill(launcher(), SIGTERM);
  if (how == "alike") throw std::runtime_error{"failed on purpose"};
  if (how == "alone" && program.mine) throw std::runtime_error{"failed on purpose"};
  strategy.run([&](ReplicaContext& context) {
    if (program.mine && how == "kill") (void)std::raise(SIGKILL);
    if (program.mine && how == "stop") (void)std::raise(SIGSTOP);
    if (program.mine && how == "throw") throw std::runtime_error{"failed on purpose"};
    if (program.mine && how == "skip") return;
    (void)context.all_reduce(ReduceOp::sum, 1.0);
  });
  while (how == "interrupted") ::pause();
  // The other part has no failure, and the program waits for all.
  MPI_Barrier(MPI_COMM_WORLD);
}

/// Of a failure that is reported, an exception leaves the runtime, and another runtime follows.
void be_told() {
  const std::string how = program.mode.substr(program.mode.find('-') + 1);
  const bool concerned = program.rank % 2 == 1;
  bool told = false;
  try {
    Runtime runtime{program.options()};
    if (concerned) fail(runtime, how);
  } catch (const std::exception& error) {
    told = true;
    if (program.rank == 1) std::printf("%s\n", error.what());
  }
  require(told == concerned || (how == "alone" && !program.mine), "a failure of this part alone");
  Runtime runtime{program.options()};
  train(runtime);
}

void make_many(int count) {
  for (int made = 0; made < count; ++made) {
    Runtime runtime{program.options()};
    (void)runtime.strategy().same_on_all(made);
  }
}

std::string refused(const RuntimeOptions& options) {
  try {
    const Runtime runtime{options};
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing";
}

void be_refused_without_mpi() {
  require(refused({}).find("in a program that has not started MPI") != std::string::npos, "a start of MPI");
  require(refused({.communicator = 0}).find("in a program that has not started MPI") != std::string::npos,
          "a start of MPI before a communicator");
}

/// In a process that this one spawns, which says whether it was.
void be_refused_in_child(char* self) {
  std::array<char*, 3> arguments{const_cast<char*>("spawned"), const_cast<char*>("0"), nullptr};
  MPI_Comm child = MPI_COMM_NULL;
  MPI_Comm_spawn(self, arguments.data(), 1, MPI_INFO_NULL, 0, MPI_COMM_SELF, &child, MPI_ERRCODES_IGNORE);
  int was_refused = 0;
  MPI_Recv(&was_refused, 1, MPI_INT, 0, 0, child, MPI_STATUS_IGNORE);
  MPI_Comm_disconnect(&child);
  require(was_refused == 1, "a spawned process to be refused");
}

int be_spawned() {
  const int was_refused = refused({}).starts_with("a Runtime in a process that MPI_Comm_spawn has started") ? 1 : 0;
  MPI_Comm parent = MPI_COMM_NULL;
  MPI_Comm_get_parent(&parent);
  MPI_Send(&was_refused, 1, MPI_INT, 0, 0, parent);
  MPI_Comm_disconnect(&parent);
  MPI_Finalize();
  return 0;
}

/// Runtimes of libraries that know nothing of each other: one on the ranks of this part, one on those but the last, in
/// another order, and one that asks for no ranks. The job outlives the first.
void share() {
  MPI_Comm turned = MPI_COMM_NULL;
  int place = 0, size = 0;
  MPI_Comm_rank(program.part, &place);
  MPI_Comm_size(program.part, &size);
  const bool is_last = place == size - 1;
  MPI_Comm_split(program.part, is_last ? MPI_UNDEFINED : 0, -place, &turned);
  auto first = std::make_unique<Runtime>(program.options());
  std::unique_ptr<Runtime> second;
  if (!is_last) second = std::make_unique<Runtime>(RuntimeOptions{.communicator = MPI_Comm_c2f(turned)});
  if (turned != MPI_COMM_NULL) MPI_Comm_free(&turned);
  int of_first[] = {1};
  Group::Request under_way = first->group().submit_all_reduce(std::span{of_first});
  if (second) {
    require(second->size() == size - 1 && second->rank() == size - 2 - place, "the ranks of the communicator");
    int of_second[] = {1 << place};
    second->group().all_reduce(std::span{of_second});
    require(of_second[0] == (1 << second->size()) - 1, "the sum of the second's ranks");
  }
  under_way.wait();
  require(of_first[0] == size, "the number of the first's ranks");
  try {
    Runtime whole{RuntimeOptions{}};
    require(whole.size() == size && whole.rank() == place, "all ranks of the job without a communicator");
    throw std::logic_error{"caught by its library"};
  } catch (const std::logic_error&) {
  }
  (void)first->strategy().same_on_all(3);
  pass_on(7);
  first.reset();
  if (second) (void)second->strategy().same_on_all(1);
}

/// An exception of one rank leaves the first of two runtimes, or the last, on the odd ranks.
void leave_shared_job() {
  std::unique_ptr<Runtime> first, second;
  if (program.rank % 2 == 1) {
    auto owner = std::make_unique<Runtime>(program.options());
    second = std::make_unique<Runtime>(RuntimeOptions{});
    const bool is_first = program.mode == "first_leaves";
    if (!is_first) owner.reset();
    const std::unique_ptr<Runtime> leaves = std::move(is_first ? owner : second);
    if (program.mine) throw std::runtime_error{"failed on purpose"};
    MPI_Barrier(MPI_COMM_WORLD);
  }
  MPI_Barrier(MPI_COMM_WORLD);
}

/// Two at once, one on another thread than MPI's, none at all, one between two groups, and one that wants a signal.
void be_refused() {
  RuntimeOptions options = program.options();
  {
    const Runtime runtime{options};
    int argc = 0;
    char** argv = nullptr;
    std::string second;
    try {
      const Runtime refused{argc, argv, options};
    } catch (const ContextError& error) {
      second = error.what();
    }
    require(second.starts_with("a second Runtime in a process that has one"), "the second to be refused");
    require(
        refused({.communicator = MPI_Comm_c2f(MPI_COMM_WORLD)}).find("is not in the runtime's") != std::string::npos,
        "a second with more ranks to be refused");
    require(refused({.device = "cuda", .communicator = options.communicator}) ==
                "a Runtime with device cuda in a process whose job has cpu; expected the same, or auto",
            "a second on other devices to be refused");
    RuntimeOptions invalid{.communicator = options.communicator};
    invalid.reductions.packing = ReductionOptions::into_packs(0);
    require(refused(invalid).find("num_packs") != std::string::npos, "a second with invalid reductions to be refused");
  }
  std::string elsewhere;
  {
    const Runtime runtime{options};
    std::thread{[&] { elsewhere = refused({.communicator = options.communicator}); }}.join();
    require(elsewhere.starts_with("a Runtime on another thread than the first"),
            "another thread to be refused a share");
  }
  std::thread{[&] { elsewhere = refused(options); }}.join();
  require(elsewhere.starts_with("the runtime was made on another thread"), "another thread to be refused");
  options.communicator = MPI_Comm_c2f(MPI_COMM_NULL);
  require(refused(options).find("is MPI_COMM_NULL") != std::string::npos, "MPI_COMM_NULL to be refused");
  MPI_Comm between = MPI_COMM_NULL;
  MPI_Intercomm_create(program.part, 0, MPI_COMM_WORLD, 1 - program.rank, 5, &between);
  options.communicator = MPI_Comm_c2f(between);
  require(refused(options).find("is an intercommunicator") != std::string::npos, "an intercommunicator to be refused");
  MPI_Comm_disconnect(&between);
  options.communicator = program.options().communicator;
  options.stop_signal = SIGUSR1;
  options.on_failure = RuntimeOptions::OnFailure::report;
  require(refused(options).starts_with("RuntimeOptions::stop_signal beside"), "a signal to be refused");
}

/// On the odd ranks, while the others are elsewhere in the program.
void fail_in_options() {
  int argc = 0;
  char** argv = nullptr;
  if (program.rank % 2 == 1)
    (void)run_program(
        argc, argv, []() -> RuntimeOptions { throw ConfigError{"expected other options"}; }, [](Runtime&) {});
  MPI_Barrier(MPI_COMM_WORLD);
}

void run(int count, const Process& before) {
  if (program.mode == "many") return make_many(count);
  if (program.mode == "refused") return be_refused();
  if (program.mode == "shares") return share();
  if (program.mode.ends_with("_leaves")) return leave_shared_job();
  if (program.mode == "spawns") return;
  if (program.mode == "options") return fail_in_options();
  if (program.mode.starts_with("report")) return be_told();
  Runtime runtime{program.options()};
  Process{}.require_same_outside(before);
  if (program.mode == "works") {
    use_groups(runtime);
    return train(runtime);
  }
  if (program.rank % 2 == 1)
    fail(runtime, program.mode);
  else
    MPI_Barrier(MPI_COMM_WORLD);
}

/// The program ends MPI while the runtimes live, and half of them for ever.
int end_mpi_first() {
  const RuntimeOptions options = program.options();
  auto runtime = std::make_unique<Runtime>(options);
  train(*runtime);
  MPI_Finalize();
  bool is_refused = false;
  try {
    (void)runtime->strategy().same_on_all(1);
  } catch (const ContextError&) {
    is_refused = true;
  }
  if (!refused(options).starts_with("a Runtime after MPI_Finalize")) return 8;
  if (program.rank % 2 == 1) (void)runtime.release();
  return is_refused ? 0 : 9;
}

/// Before the options are made, some ranks cannot know that they are guests.
int run_with_code(int argc, char** argv) {
  const auto body = [](Runtime& runtime) {
    if (program.rank % 2 == 1) fail(runtime, "throw");
  };
  if (program.rank < 2) return run_program(argc, argv, program.options(), body);
  return run_program(
      argc, argv, [] { return program.options(); }, body);
}

}  // namespace

// MPI's own functions, counted.
extern "C" int MPI_Comm_dup(MPI_Comm parent, MPI_Comm* made) {
  return count(next<decltype(MPI_Comm_dup)>("MPI_Comm_dup")(parent, made), made);
}
extern "C" int MPI_Comm_split(MPI_Comm parent, int colour, int key, MPI_Comm* made) {
  return count(next<decltype(MPI_Comm_split)>("MPI_Comm_split")(parent, colour, key, made), made);
}
extern "C" int MPI_Comm_split_type(MPI_Comm parent, int type, int key, MPI_Info info, MPI_Comm* made) {
  return count(next<decltype(MPI_Comm_split_type)>("MPI_Comm_split_type")(parent, type, key, info, made), made);
}
extern "C" int MPI_Comm_create_group(MPI_Comm parent, MPI_Group group, int tag, MPI_Comm* made) {
  return count(next<decltype(MPI_Comm_create_group)>("MPI_Comm_create_group")(parent, group, tag, made), made);
}
extern "C" int MPI_Comm_free(MPI_Comm* communicator) {
  --program.communicators;
  return next<decltype(MPI_Comm_free)>("MPI_Comm_free")(communicator);
}

int main(int argc, char** argv) {
  program.mode = argv[1];
  // A runtime would take it only from a program without a handler.
  if (program.mode != "report_code") std::signal(SIGUSR2, [](int) {});
  if (program.mode == "refused") be_refused_without_mpi();
  if (std::getenv("LOCKSTEP_TEST_MULTIPLE")) {
    int level = 0;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    if (level != MPI_THREAD_MULTIPLE) return 1;
  } else {
    MPI_Init(&argc, &argv);
  }
  if (program.mode == "spawned") return be_spawned();
  MPI_Comm_rank(MPI_COMM_WORLD, &program.rank);
  MPI_Comm_size(MPI_COMM_WORLD, &program.size);
  program.mine = program.rank == std::atoi(argv[2]);
  MPI_Errhandler handler = MPI_ERRHANDLER_NULL;
  MPI_Comm_create_errhandler(on_mpi_error, &handler);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, handler);
  MPI_Comm_split(MPI_COMM_WORLD, program.rank % 2, 0, &program.part);
  // MPI connects ranks of several hosts when they first meet.
  std::vector<int> everyone(static_cast<std::size_t>(program.size));
  MPI_Alltoall(MPI_IN_PLACE, 1, MPI_INT, everyone.data(), 1, MPI_INT, MPI_COMM_WORLD);
  if (program.mode == "finalizes") return end_mpi_first();
  int failed = 0;
  try {
    if (program.mode == "spawns") be_refused_in_child(argv[0]);  // MPI's connection to it stays
    const Process before;
    if (program.mode == "report_code") {
      failed = run_with_code(argc, argv) == (program.rank % 2 == 1 ? 4 : 0) ? 0 : 1;
    } else {
      run(argc > 3 ? std::atoi(argv[3]) : 0, before);
    }
    Process{}.require_same(before);
    pass_on(9);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "world rank %d: %s\n", program.rank, error.what());
    failed = 1;
  }
  MPI_Comm_free(&program.part);
  MPI_Errhandler_free(&handler);
  MPI_Finalize();
  if (!refused({}).starts_with("a Runtime after MPI_Finalize")) failed = 1;
  return failed;
}
