// Counts what a runtime exchanges until its program runs: mpirun -n 4 start-exchanges. lockstep-bench scale says so for
// any number of ranks.
#include "apps/lockstep-bench/start_exchanges.hpp"

#include <fmt/format.h>
#include <mpi.h>

#include <lockstep/core/base/error.hpp>
#include <lockstep/job/runtime/runtime.hpp>

namespace {

// Functions that MPI's callers find by their names can reach only globals.
int rounds = 0, collectives = 0;

}  // namespace

extern "C" {

int MPI_Sendrecv(const void* sent, int elements, MPI_Datatype type, int to, int tag, void* received, int most,
                 MPI_Datatype received_type, int from, int received_tag, MPI_Comm comm, MPI_Status* status) {
  ++rounds;
  return PMPI_Sendrecv(sent, elements, type, to, tag, received, most, received_type, from, received_tag, comm, status);
}
int MPI_Iallgather(const void* sent, int elements, MPI_Datatype type, void* received, int each,
                   MPI_Datatype received_type, MPI_Comm comm, MPI_Request* request) {
  ++collectives;
  return PMPI_Iallgather(sent, elements, type, received, each, received_type, comm, request);
}
int MPI_Ibcast(void* buffer, int elements, MPI_Datatype type, int root, MPI_Comm comm, MPI_Request* request) {
  ++collectives;
  return PMPI_Ibcast(buffer, elements, type, root, comm, request);
}
int MPI_Allgather(const void* sent, int elements, MPI_Datatype type, void* received, int each,
                  MPI_Datatype received_type, MPI_Comm comm) {
  ++collectives;
  return PMPI_Allgather(sent, elements, type, received, each, received_type, comm);
}
int MPI_Allreduce(const void* sent, void* received, int elements, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
  ++collectives;
  return PMPI_Allreduce(sent, received, elements, type, op, comm);
}
int MPI_Bcast(void* buffer, int elements, MPI_Datatype type, int root, MPI_Comm comm) {
  ++collectives;
  return PMPI_Bcast(buffer, elements, type, root, comm);
}
int MPI_Barrier(MPI_Comm comm) {
  ++collectives;
  return PMPI_Barrier(comm);
}
int MPI_Comm_dup(MPI_Comm comm, MPI_Comm* made) {
  ++collectives;
  return PMPI_Comm_dup(comm, made);
}
int MPI_Comm_split(MPI_Comm comm, int color, int key, MPI_Comm* made) {
  ++collectives;
  return PMPI_Comm_split(comm, color, key, made);
}
int MPI_Comm_split_type(MPI_Comm comm, int kind, int key, MPI_Info info, MPI_Comm* made) {
  ++collectives;
  return PMPI_Comm_split_type(comm, kind, key, info, made);
}
int MPI_Comm_create_group(MPI_Comm comm, MPI_Group group, int tag, MPI_Comm* made) {
  ++collectives;
  return PMPI_Comm_create_group(comm, group, tag, made);
}

}  // extern "C"

int main(int argc, char** argv) {
  using namespace lockstep;
  return run_program(argc, argv, {.device = "cpu"}, [](Runtime& runtime) {
    int rounds_of_one = 0;
    while (1 << rounds_of_one < runtime.size()) ++rounds_of_one;
    constexpr bench::StartExchanges expected = bench::start_exchanges;
    if (rounds != expected.agreements * rounds_of_one || collectives != expected.collectives)
      throw Error{fmt::format("{} rounds and {} collectives on {} ranks; expected {} rounds, and {} collectives",
                              rounds, collectives, runtime.size(), expected.agreements * rounds_of_one,
                              expected.collectives)};
  });
}
