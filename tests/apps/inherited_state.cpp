// What ranks have inherited, and what is said of it.
#include "job/runtime/inherited_state.hpp"

#include <cfenv>
#include <cstdlib>
#include <string>
#include <vector>

#include <catch2/catch.hpp>
#include <sys/resource.h>

#include <lockstep/core/base/error.hpp>

#include "support/child_process.hpp"

using namespace lockstep;
using lockstep::test::ChildProcess;

namespace {

using Texts = std::vector<std::string>;

Texts doubts(const std::vector<InheritedState>& states) {
  const std::vector<int> nodes{0, 0, 2};
  const Texts names{"replica 0", "replica 1", "replica 2"};
  return doubts_about(states, std::span{nodes}.first(states.size()), std::span{names}.first(states.size()));
}

}  // namespace

TEST_CASE("ranks that were started alike are not in doubt, and each difference has its sentence") {
  const InheritedState plain{.cores = {0, 1}};
  CHECK(doubts({plain, plain, plain}).empty());
  InheritedState other = plain;
  other.values = {{"OMP_NUM_THREADS", "4"}, {"nice", "10"}};
  CHECK(
      doubts({plain, plain, other}) ==
      Texts{
          "replica 2 was started in a different way than replica 0: OMP_NUM_THREADS is 4 there, and not set here; nice "
          "is 10 there, and not set here; expected the same on every rank (mpirun -x NAME passes a variable on)"});
  CHECK(doubts({other, other, other}).empty());
  InheritedState fast = plain;
  fast.floating_point_modes = "subnormal results become 0 (FTZ)";
  CHECK(
      doubts({plain, fast, fast}) ==
      Texts{"in replica 1, subnormal results become 0 (FTZ): a library compiled with -ffast-math sets this when it is "
            "loaded; lockstep computes with the modes with which a process starts"});
  InheritedState deaf = plain;
  deaf.blocks_sigterm = true;
  CHECK(doubts({plain, deaf}) == Texts{"replica 1 blocks SIGTERM, with which mpirun tells it to end: mpirun kills it "
                                       "instead, and it does not say where it was"});
}

TEST_CASE("ranks that OpenMP binds to one core are said to share it, and those with cores of their own are not") {
  InheritedState bound{.binding = "OMP_PROC_BIND=true", .cores = {0}};
  InheritedState next = bound, free = bound;
  next.cores = {1};
  CHECK(doubts({bound, bound, bound}) ==
        Texts{"replica 0 and 1 other rank of its node share 1 core: OMP_PROC_BIND=true binds the first thread of every "
              "process to a core; expected OMP_PROC_BIND=false"});
  CHECK(doubts({bound, next, bound}).empty());
  free.binding.clear();
  CHECK(doubts({free, free}).empty());  // mpirun --oversubscribe, say
  bound.cores.clear();
  CHECK(doubts({bound, bound}).empty());  // the system has not said which there are
}

TEST_CASE("a process finds what it has inherited, and tells it in a line") {
  ChildProcess child{[] {
    for (const char* each : {"OMP_NUM_THREADS", "MALLOC_ARENA_MAX", "DNNL_MAX_CPU_ISA", "OMP_PLACES"})
      ::setenv(each, "3\n\xff", 1);
    ::setenv("OMP_PROC_BIND", "close", 1);
    ::setenv("UNRELATED", "1", 1);
    ::setpriority(PRIO_PROCESS, 0, 7);
    const rlimit limit{.rlim_cur = 600, .rlim_max = 700};
    ::setrlimit(RLIMIT_CPU, &limit);
    std::fesetround(FE_DOWNWARD);
    sigset_t terminate;
    sigemptyset(&terminate);
    sigaddset(&terminate, SIGTERM);
    ::sigprocmask(SIG_BLOCK, &terminate, nullptr);
    const InheritedState found = inherited_state();
    const auto is = [&](const char* name, const std::string& value) {
      const auto at = found.values.find(name);
      return at != found.values.end() && at->second == value;
    };
    if (!is("OMP_NUM_THREADS", "3\n\xff") || !is("MALLOC_ARENA_MAX", "3\n\xff") || !is("DNNL_MAX_CPU_ISA", "3\n\xff"))
      return 1;
    if (!is("nice", "7") || !is("limit of CPU time (ulimit -t)", "600 s")) return 2;
    if (found.values.contains("OMP_PLACES") || found.values.contains("UNRELATED")) return 3;
    if (found.binding != "OMP_PROC_BIND=close" || !found.blocks_sigterm || found.cores.empty()) return 4;
    if (found.floating_point_modes != "results are rounded downward") return 5;
    const std::string text = to_text(found);
    if (text.find('\n') != text.npos) return 6;
    const InheritedState read = parse_inherited_state(text);
    return read.cores == found.cores && read.values.size() == found.values.size() && to_text(read) == text ? 0 : 7;
  }};
  CHECK(child.wait() == 0);
}

TEST_CASE("threads get larger stacks than a small limit gives, and a process that may have none ends with the limit") {
  ChildProcess child{[] {
    rlimit limit{.rlim_cur = 256 << 10, .rlim_max = 4 << 20};
    ::setrlimit(RLIMIT_STACK, &limit);
    pthread_attr_t small;
    ::pthread_getattr_default_np(&small);
    ::pthread_attr_setstacksize(&small, 256 << 10);
    ::pthread_setattr_default_np(&small);
    require_stack();
    ::getrlimit(RLIMIT_STACK, &limit);
    if (limit.rlim_cur != 4 << 20) return 1;
    std::size_t size = 0;
    ::pthread_getattr_default_np(&small);
    ::pthread_attr_getstacksize(&small, &size);
    if (size < std::size_t{1} << 20) return 2;
    limit = {.rlim_cur = 512 << 10, .rlim_max = 512 << 10};
    ::setrlimit(RLIMIT_STACK, &limit);
    try {
      require_stack();
    } catch (const ConfigError& error) {
      const std::string text = error.what();
      return text == "the stack of this process may have 512 KiB (ulimit -s); expected at least 1024 KiB" ? 0 : 3;
    }
    return 4;
  }};
  CHECK(child.wait() == 0);
}
