// A program in which one rank fails at one point of a job's life: `points POINT FAULT RANK`.
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>

#include <mpi.h>
#include <sys/wait.h>
#include <unistd.h>

#include <lockstep/training.hpp>

#include "core/cluster/launch.hpp"
#include "support/next_function.hpp"

using namespace lockstep;
using lockstep::test::next;

namespace {

struct Culprit {
  std::string point, fault;
  bool mine = false;
  bool in_sum = false;  ///< about to sum, as all ranks have agreed
} culprit;

/// The rank as mpirun numbers it: MPI may not have started.
int rank_by_launcher() {
  for (const LauncherVariables& each : launcher_variables)
    if (const char* const rank = std::getenv(each.rank_of_mpi)) return std::atoi(rank);
  return 0;
}

/// Another process stops this one and continues it: twice for half the stall timeout, or once for longer.
void be_paused(bool for_long) {
  const pid_t self = ::getpid();
  const pid_t other = ::fork();
  if (other == 0) {
    for (int left = for_long ? 1 : 2; left > 0; --left) {
      (void)::kill(self, SIGSTOP);
      ::usleep(for_long ? 3'000'000 : 500'000);
      (void)::kill(self, SIGCONT);
      if (left > 1) ::usleep(600'000);
    }
    ::_exit(0);
  }
  (void)::waitpid(other, nullptr, 0);
}

/// Where a rank may fail.
void point(const std::string& name) {
  if (!culprit.mine || culprit.point != name) return;
  if (culprit.fault == "throw") throw std::runtime_error{"failed on purpose"};
  if (culprit.fault == "exit") ::_exit(0);
  if (culprit.fault == "pauses" || culprit.fault == "observed") return be_paused(culprit.fault == "observed");
  while (culprit.fault == "late" || culprit.fault == "busy") ::pause();  // until it is told to end
  (void)::raise(culprit.fault == "kill" ? SIGKILL : SIGSTOP);
}

/// Around every collective on tensors.
void collective(const std::function<void()>& call) {
  if (culprit.in_sum) point("fence");
  call();
}

void train(Runtime& runtime) {
  Strategy& strategy = runtime.strategy();
  point("body");
  const auto variable = strategy.create_variable({.name = "w"}, [] {
    point("initial value");
    return Tensor::scalar(1.f);
  });
  point("before seal");
  strategy.seal();
  strategy.run([&](ReplicaContext& context) {
    point("replica code");
    context.merge_call([](Strategy&) { point("merge function"); });
    point("before close");
  });
  strategy.run([&](ReplicaContext& context) {
    context.merge_call([](Strategy& merged) {
      merged.run([](ReplicaContext& inner) { inner.merge_call([](Strategy&) { point("nested merge function"); }); });
    });
  });
  Sgd sgd{{.learning_rate = 1}};
  strategy.run([&](ReplicaContext& context) {
    const auto compute = [&](Optimizer::AgreedStep& step) -> Optimizer::StepSums {
      point("agreed computation");
      step.ready(variable);
      return {.samples = 1};
    };
    sgd.apply_gradients(
        context, {.gradients = Optimizer::gradients_in_store(strategy.store(), {variable}), .computation = {compute}});
  });
  culprit.in_sum = true;
  strategy.run([](ReplicaContext& context) { (void)context.all_reduce(ReduceOp::sum, Tensor::scalar(1.f)); });
  culprit.in_sum = false;
  {
    const auto alone = runtime.working_alone();
    point("alone");
  }
  (void)strategy.same_on_all(culprit.mine && culprit.fault == "differs" ? 2 : 1);
  point("last");
}

/// Short where only the timeout shows the fault: the rank has stopped, or ended before MPI knew it.
/// Elsewhere it is long, so that a job that starts slowly does not run into it.
std::chrono::seconds stall_timeout() {
  const bool before_mpi = culprit.point == "options" || culprit.point == "MPI_Init";
  const bool shown_by_it =
      culprit.fault != "throw" && culprit.fault != "exit" && culprit.fault != "kill" && culprit.fault != "late";
  return std::chrono::seconds{shown_by_it || before_mpi ? 1 : 20};
}

}  // namespace

// MPI's own functions, with a point in each.
extern "C" int MPI_Abort(MPI_Comm communicator, int code) {
  if (culprit.fault == "nap") {
    // mpirun does so before it ends the ranks, and on a busy machine they may get this far.
    const std::string launcher = std::to_string(::getppid());
    std::ifstream children{"/proc/" + launcher + "/task/" + launcher + "/children"};
    for (pid_t child = 0; children >> child;) (void)::kill(child, SIGCONT);
    std::this_thread::sleep_for(std::chrono::milliseconds{300});
  }
  return next<decltype(MPI_Abort)>("MPI_Abort")(communicator, code);
}
extern "C" int MPI_Init_thread(int* argc, char*** argv, int required, int* provided) {
  point("MPI_Init");
  const int result = next<decltype(MPI_Init_thread)>("MPI_Init_thread")(argc, argv, required, provided);
  point("after MPI_Init");
  return result;
}
extern "C" int MPI_Finalize() {
  if (culprit.fault == "nap") (void)std::fputs("MPI_Finalize\n", stderr);
  point("MPI_Finalize");
  const int result = next<decltype(MPI_Finalize)>("MPI_Finalize")();
  point("after MPI");
  return result;
}

int main(int argc, char** argv) {
  culprit = {.point = argv[1], .fault = argv[2], .mine = rank_by_launcher() == std::atoi(argv[3])};
  const int code = run_program(
      argc, argv,
      [] {
        point("options");
        if (culprit.fault == "late") throw ConfigError{"wrong on purpose"};
        return RuntimeOptions{
            .device = "cpu",
            .reductions = {.around = collective},
            .stall_timeout = stall_timeout(),
            .on_stall = culprit.fault == "observed" ? RuntimeOptions::OnStall::observe : RuntimeOptions::OnStall::end,
            .mpi_threads = std::getenv("LOCKSTEP_TEST_MAIN_THREAD") ? RuntimeOptions::MpiThreads::main
                                                                    : RuntimeOptions::MpiThreads::any};
      },
      train);
  point("last way");
  return code;
}
