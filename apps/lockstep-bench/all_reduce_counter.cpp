#include "apps/lockstep-bench/all_reduce_counter.hpp"

#include <algorithm>

#include <mpi.h>

namespace lockstep::bench {
namespace {

// A function that MPI's callers find by its name can reach nothing but a global.
AllReduceCalls* current = nullptr;

void count(std::int64_t bytes) {
  current->smallest_bytes = current->calls == 0 ? bytes : std::min(current->smallest_bytes, bytes);
  current->largest_bytes = std::max(current->largest_bytes, bytes);
  ++current->calls;
}

}  // namespace

AllReduceCounter::AllReduceCounter(AllReduceCalls& calls) {
  current = &calls;
}

AllReduceCounter::~AllReduceCounter() {
  current = nullptr;
}

}  // namespace lockstep::bench

extern "C" int MPI_Allreduce(const void* sent, void* received, int elements, MPI_Datatype type, MPI_Op op,
                             MPI_Comm comm) {
  if (lockstep::bench::current) {
    int element_bytes = 0;
    PMPI_Type_size(type, &element_bytes);
    lockstep::bench::count(std::int64_t{elements} * element_bytes);
  }
  return PMPI_Allreduce(sent, received, elements, type, op, comm);
}
