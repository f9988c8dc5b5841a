// Whether the threads asked for have cores.
#include <catch2/catch.hpp>

#include "apps/lockstep-train/options/thread_check.hpp"

using namespace lockstep;

TEST_CASE("threads without cores of their own are warned of, and one thread for each rank never") {
  CHECK(thread_warning(99, 1, {2, 2, ""}) ==
        "--threads 99: a rank on a node of 2 cores; expected at most as many threads as cores");
  CHECK(thread_warning(2, 3, {4, 4, ""}) ==
        "--threads 2: 3 ranks on a node of 4 cores; expected at most as many threads as cores");
  CHECK(thread_warning(2, 2, {4, 1, "mpirun"}) ==
        "--threads 2: mpirun bound the rank to 1 core; expected mpirun --bind-to none");
  CHECK(thread_warning(2, 2, {4, 1, "OMP_PROC_BIND=close"}) ==
        "--threads 2: OMP_PROC_BIND=close bound the rank to 1 core; expected OMP_PROC_BIND=false");
  CHECK(thread_warning(2, 2, {4, 1, ""}) ==
        "--threads 2: what started the job (taskset, a control group, a scheduler) left it 1 core; expected at most as "
        "many threads as cores");
  CHECK(thread_warning(2, 2, {4, 2, "mpirun"}).empty());
  CHECK(thread_warning(2, 2, {4, 4, ""}).empty());
  CHECK(thread_warning(1, 8, {2, 1, "mpirun"}).empty());
  CHECK(find_cores().of_rank >= 1);
  CHECK(find_cores().of_node >= find_cores().of_rank);
}
