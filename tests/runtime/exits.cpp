// A program that ends in one of many ways: `exits MODE RANK`, where RANK is the one that misbehaves.
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include <dlfcn.h>
#include <mpi.h>
#include <sys/wait.h>
#include <unistd.h>

#include <lockstep/training.hpp>

#include "core/base/open_line.hpp"
#include "core/control/job_time.hpp"

using namespace lockstep;

namespace {

void step(Runtime& runtime) {
  runtime.strategy().run([](ReplicaContext& context) { (void)context.all_reduce(ReduceOp::sum, 1.0); });
}

/// A line of progress is open when the signal comes.
void be_interrupted(Runtime& runtime, int signal) {
  if (runtime.is_chief() && begin_open_line()) std::fputs("\rstep 1/9", stderr);
  runtime.strategy().run([&](ReplicaContext&) {
    std::raise(signal);
    while (true) ::pause();
  });
}

/// One rank makes light of a verdict that the others leave with.
void swallow_verdict(Runtime& runtime, bool mine) {
  try {
    (void)runtime.strategy().same_on_all(runtime.rank());
  } catch (const MismatchError&) {
    if (!mine) throw;
  }
}

/// Runtime by hand, as a main without run_program has it.
int by_hand(int argc, char** argv, const std::string& mode, int culprit) {
  RuntimeOptions options{.device = "cpu"};
  if (mode.starts_with("reported")) options.on_failure = RuntimeOptions::OnFailure::report;
  Runtime runtime{argc, argv, options};
  const bool mine = runtime.rank() == culprit;
  step(runtime);
  if (mode == "uncaught-in-step" || mode == "reported-uncaught")
    runtime.strategy().run([&](ReplicaContext&) {
      if (mine) throw std::runtime_error{"uncaught in a step"};
    });
  if (mode == "uncaught-alone" && mine) throw std::runtime_error{"uncaught outside of any step"};
  if (mode == "uncaught-while-others-work") {
    if (mine) throw std::runtime_error{"uncaught while others work"};
    ::pause();
  }
  if (mode == "uncaught-everywhere") throw ConfigError{"the same wrong file on all ranks"};
  if (mode == "early-return" && mine) return 0;
  if (mode == "leaves-with-verdict") {
    try {
      (void)runtime.strategy().same_on_all(runtime.rank());
    } catch (const MismatchError&) {
      if (mine) throw;
    }
  }
  if (mode == "swallows-verdict") {
    swallow_verdict(runtime, mine);
    return 0;
  }
  if (mode == "early-exit" && mine) std::exit(0);
  step(runtime);
  return 0;
}

/// Without the library that plays a machine that lacks something, nothing happens.
void begin_to_lack() {
  if (void* const lack = ::dlsym(RTLD_DEFAULT, "lockstep_test_lack")) reinterpret_cast<void (*)()>(lack)();
}

std::optional<Runtime> global_runtime;

/// A complete run whose runtime nobody destroys before `main` returns, or `exit` is called, with `code`.
int end_with_runtime(int argc, char** argv, const std::string& mode, int code) {
  std::unique_ptr<Runtime> own;
  Runtime* runtime = nullptr;
  if (mode == "ends-static") {
    static Runtime instance{argc, argv, {.device = "cpu"}};
    runtime = &instance;
  } else if (mode == "ends-global") {
    runtime = &global_runtime.emplace(argc, argv, RuntimeOptions{.device = "cpu"});
  } else {
    own = std::make_unique<Runtime>(argc, argv, RuntimeOptions{.device = "cpu"});
    runtime = own.get();
  }
  if (mode == "ends-leaked") (void)own.release();
  step(*runtime);
  if (runtime->is_chief()) std::printf("done");
  if (mode != "ends-by-exit") return code;
  // Longer than a rank that fails waits for the others.
  if (code == 0 && runtime->is_chief()) ::usleep(1'200'000);
  std::exit(code);
}

/// A run of a process that lacks something from its beginning, or from its last step on.
int lack(int argc, char** argv, const std::string& mode, int culprit) {
  if (mode == "lacks-from-start") begin_to_lack();
  return run_program(
      argc, argv, [] { return RuntimeOptions{.device = "cpu"}; },
      [&](Runtime& runtime) {
        step(runtime);
        const bool mine = runtime.rank() == culprit;
        const std::runtime_error failure{"failed on purpose"};
        if (mine) begin_to_lack();
        if (mode == "lacks-and-throws" && mine) throw failure;
        if (mode == "lacks-and-throws") step(runtime);
      });
}

/// Another process stops all ranks for longer than the stall timeout, as a scheduler does that suspends a job.
int be_paused(int argc, char** argv) {
  Runtime runtime{argc, argv, {.device = "cpu", .stall_timeout = std::chrono::seconds{1}}};
  step(runtime);
  const auto before = JobTime::now();
  if (runtime.is_chief()) {
    const std::string launcher = std::to_string(::getppid());
    const pid_t pausing = ::fork();
    if (pausing == 0) {
      std::ifstream children{"/proc/" + launcher + "/task/" + launcher + "/children"};
      const std::vector<pid_t> ranks{std::istream_iterator<pid_t>{children}, {}};
      for (const pid_t rank : ranks) (void)::kill(rank, SIGSTOP);
      ::usleep(2'500'000);
      for (const pid_t rank : ranks) (void)::kill(rank, SIGCONT);
      ::_exit(0);
    }
    (void)::waitpid(pausing, nullptr, 0);
  }
  step(runtime);
  step(runtime);
  return JobTime::now() - before < std::chrono::seconds{2} ? 0 : 9;
}

/// A member of the job that never joins: it starts MPI, and makes no runtime.
int only_start_mpi() {
  MPI_Init(nullptr, nullptr);
  while (true) ::pause();
}

/// Ranks 0 and 1 are in two groups, which they use in different orders; or one fails in a run, or does not come to make
/// the second group.
int in_groups(int argc, char** argv, const std::string& mode, int culprit) {
  const RuntimeOptions options{.device = "cpu", .stall_timeout = std::chrono::seconds{mode == "groups-fail" ? 60 : 1}};
  return run_program(argc, argv, options, [&](Runtime& runtime) {
    if (runtime.rank() < 2) {
      const std::vector<int> ranks{1, 0};
      Strategy first{runtime.group().subset(ranks)};
      while (mode == "groups-not-made" && runtime.rank() == culprit) ::usleep(10'000);
      Strategy second{runtime.group().subset(ranks)};
      if (mode == "groups-fail")
        first.run([&](ReplicaContext&) {
          if (runtime.rank() == culprit) throw std::runtime_error{"failed in a group"};
        });
      if (runtime.rank() == 0) (void)first.reduce(ReduceOp::sum, PerReplica<int>{1});
      (void)second.reduce(ReduceOp::sum, PerReplica<int>{1});
      if (runtime.rank() == 1) (void)first.reduce(ReduceOp::sum, PerReplica<int>{1});
    }
    step(runtime);
  });
}

int caught_outside(int argc, char** argv, int culprit) {
  try {
    Runtime runtime{argc, argv, {.device = "cpu"}};
    if (runtime.rank() == culprit) throw std::runtime_error{"caught by main"};
    step(runtime);
  } catch (const std::exception&) {
    return 9;
  }
  return 0;
}

/// The libraries that this process has in memory.
std::set<std::string> libraries() {
  std::set<std::string> names;
  std::ifstream maps{"/proc/self/maps"};
  for (std::string line; std::getline(maps, line);)
    if (const auto path = line.find('/'); path != std::string::npos && line.find(".so") != std::string::npos)
      names.insert(line.substr(path));
  return names;
}

/// What Open MPI's threads may still call stays in memory when MPI has ended.
int keep_libraries(int argc, char** argv) {
  std::set<std::string> before;
  const int code = run_program(
      argc, argv, [] { return RuntimeOptions{.device = "cpu"}; }, [&](Runtime&) { before = libraries(); });
  const std::set<std::string> after = libraries();
  for (const std::string& each : before) {
    if (after.contains(each)) continue;
    std::fprintf(stderr, "unloaded: %s\n", each.c_str());
    return 9;
  }
  return code;
}

volatile std::sig_atomic_t pipe_signals = 0;

int break_pipe(int argc, char** argv, int culprit, bool handles) {
  if (handles) std::signal(SIGPIPE, [](int) { pipe_signals = 1; });
  return run_program(
      argc, argv, [] { return RuntimeOptions{.device = "cpu"}; },
      [&](Runtime& runtime) {
        if (runtime.rank() != culprit) return step(runtime);
        std::raise(SIGPIPE);
        if (handles && pipe_signals != 1) throw std::runtime_error{"the handler was not called"};
        step(runtime);
      });
}

volatile std::sig_atomic_t questions = 0;

/// SIGUSR2 to a process with a runtime, and to one that had one.
int be_asked(int argc, char** argv, bool handles) {
  if (handles) std::signal(SIGUSR2, [](int) { questions = questions + 1; });
  {
    Runtime runtime{argc, argv, {.device = "cpu"}};
    step(runtime);
    ::kill(::getpid(), SIGUSR2);
    step(runtime);
  }
  ::kill(::getpid(), SIGUSR2);
  return questions == (handles ? 2 : 0) ? 0 : 9;
}

int by_run_program(int argc, char** argv, const std::string& mode, int culprit) {
  return run_program(
      argc, argv, [] { return RuntimeOptions{.device = "cpu"}; },
      [&](Runtime& runtime) {
        const bool mine = runtime.rank() == culprit;
        step(runtime);
        if (mode == "program-exit" && mine) runtime.strategy().run([](ReplicaContext&) { std::exit(3); });
        if (mode == "program-alike") (void)Range::of_rank(2, runtime.size(), runtime.rank());
        if (mode == "program-unsealed")
          (void)runtime.strategy().create_variable({.name = "w"}, [] { return Tensor::scalar(1.0); }).local();
        if (mode == "program-interrupted") be_interrupted(runtime, culprit);
        if (mode == "program-alone" && mine) throw std::runtime_error{"body failed on its own"};
        if (mode == "program-early-return" && mine) return;
        if (mode == "program-swallows-verdict") return swallow_verdict(runtime, mine);
        if (mode == "program-leaves-with-verdict") {
          // The others swallow it and go on.
          try {
            (void)runtime.strategy().same_on_all(runtime.rank());
          } catch (const MismatchError&) {
            if (mine) throw;
          }
        }
        if (mode == "program-drift") {
          const auto weights =
              runtime.strategy().create_variable({.name = "weights"}, [] { return Tensor::scalar(1.0); });
          runtime.strategy().seal();
          if (mine) weights.assign(Tensor::scalar(2.0));
          runtime.strategy().attest();
        }
        if (mode == "program-recovers") {
          try {
            runtime.strategy().run([&](ReplicaContext&) {
              if (mine) throw std::runtime_error{"survivable"};
            });
          } catch (const std::exception&) {
            runtime.strategy().rebroadcast();
          }
        }
        step(runtime);
      });
}

/// A rank stops, and the others end by themselves, with a runtime that `exit` destroys.
int be_told(int argc, char** argv, int culprit) {
  const auto on_lost = [](const std::string& sentence, Error::ExitCode) {
    std::printf("told: %s\n", sentence.c_str());
    std::exit(7);
  };
  static Runtime runtime{
      argc, argv, {.device = "cpu", .stall_timeout = std::chrono::milliseconds{500}, .on_lost = on_lost}};
  if (runtime.rank() == culprit) std::raise(SIGSTOP);
  step(runtime);
  return 0;
}

}  // namespace

/// Plays an MPI that takes long to end.
extern "C" int MPI_Finalize() {
  if (std::getenv("LOCKSTEP_TEST_SLOW_END")) ::sleep(1);
  return PMPI_Finalize();
}

int main(int argc, char** argv) {
  const std::string mode = argv[1];
  const int culprit = std::atoi(argv[2]);
  if (mode.starts_with("breaks-pipe")) return break_pipe(argc, argv, culprit, mode == "breaks-pipe-handled");
  if (mode.starts_with("asked")) return be_asked(argc, argv, mode == "asked-handled");
  if (mode == "keeps-libraries") return keep_libraries(argc, argv);
  if (mode.starts_with("program-")) return by_run_program(argc, argv, mode, culprit);
  if (mode == "paused") return be_paused(argc, argv);
  if (mode == "only-mpi") return only_start_mpi();
  if (mode == "impatient")
    return Runtime{argc, argv, {.device = "cpu", .stall_timeout = std::chrono::seconds{1}}}.rank();
  if (mode.starts_with("groups-")) return in_groups(argc, argv, mode, culprit);
  if (mode.starts_with("ends-")) return end_with_runtime(argc, argv, mode, culprit);
  if (mode == "told") return be_told(argc, argv, culprit);
  if (mode.starts_with("lacks-")) return lack(argc, argv, mode, culprit);
  if (mode == "caught-outside") return caught_outside(argc, argv, culprit);
  return by_hand(argc, argv, mode, culprit);
}
