// The main of tests under mpirun: every rank runs every test, and the program fails if one of them did.
#include <cstdio>
#include <cstdlib>

#include <sys/wait.h>
#include <unistd.h>

#include <lockstep/job/runtime/runtime.hpp>

#include "core/device/devices.hpp"
#include "support/ranks.hpp"
#include "support/run_tests.hpp"

namespace lockstep::test {
namespace {

RankRuntime* current = nullptr;

int expected_ranks() {
  const char* const text = std::getenv("LOCKSTEP_TEST_RANKS");
  return text ? std::atoi(text) : -1;
}

/// LOCKSTEP_TEST_DEVICE: "cpu", which is the default, or "cuda", where ranks may share a GPU.
/// LOCKSTEP_TEST_STALL_TIMEOUT: seconds, 60 without it, for where tests get little of a processor.
RuntimeOptions options() {
  const char* const device = std::getenv("LOCKSTEP_TEST_DEVICE");
  const char* const seconds = std::getenv("LOCKSTEP_TEST_STALL_TIMEOUT");
  RuntimeOptions options{.device = device ? device : "cpu",
                         .stall_timeout = std::chrono::seconds{seconds ? std::atoi(seconds) : 60}};
  options.allow_shared_gpu = options.device == "cuda";
  return options;
}

constexpr int skipped = 77;

/// Asked in a process of its own: a driver that starts threads would do so before the runtime has set the environment.
bool has_gpu() {
  const pid_t child = ::fork();
  if (child == 0) std::_Exit(cuda_device_count() > 0 ? 0 : 1);
  int status = 0;
  return child > 0 && ::waitpid(child, &status, 0) == child && status == 0;
}

}  // namespace

RankRuntime& runtime() {
  return *current;
}

void on_each_rank(void (*body)()) {
  body();
}

}  // namespace lockstep::test

int main(int argc, char** argv) {
  using namespace lockstep;
  int failed = 1;
  if (test::options().device == "cuda" && !test::has_gpu()) {
    std::puts("skipped: no GPU");
    return test::skipped;
  }
  const int code = run_program(argc, argv, test::options, [&](Runtime& runtime) {
    if (runtime.size() != test::expected_ranks())
      throw ConfigError{"LOCKSTEP_TEST_RANKS: this test runs under mpirun with as many ranks as that says"};
    test::RankRuntime of_rank{runtime.strategy()};
    test::current = &of_rank;
    const int mine = test::run_tests(argc, argv) == 0 ? 0 : 1;
    failed = runtime.strategy().reduce(ReduceOp::sum, PerReplica<int>{mine});
  });
  return code != 0 ? code : failed ? 1 : 0;
}
