// A library to be loaded before MPI (LD_PRELOAD), which makes of it one without MPI_THREAD_MULTIPLE. A process in which
// another thread than the one that started MPI calls it ends with a line and exit code 97.
#include <algorithm>
#include <atomic>
#include <cstdio>

#include <mpi.h>
#include <unistd.h>

#include "support/next_function.hpp"

namespace {

using lockstep::test::next;

constexpr int wrong_thread = 97;

std::atomic<bool> has_started = false;
thread_local bool may_call = false;

/// MPI, on this thread.
void start() {
  may_call = true;
  has_started = true;
}

void check(const char* function) {
  if (!has_started || may_call) return;
  std::fprintf(stderr, "%s was called on another thread than the one that MPI was started on\n", function);
  ::_exit(wrong_thread);
}

}  // namespace

extern "C" {

int MPI_Init(int* argc, char*** argv) {
  const int result = next<decltype(MPI_Init)>("MPI_Init")(argc, argv);
  start();
  return result;
}

int MPI_Init_thread(int* argc, char*** argv, int required, int* provided) {
  const int level = std::min<int>(required, MPI_THREAD_FUNNELED);
  const int result = next<decltype(MPI_Init_thread)>("MPI_Init_thread")(argc, argv, level, provided);
  *provided = level;
  start();
  return result;
}

int MPI_Query_thread(int* provided) {
  const int result = next<decltype(MPI_Query_thread)>("MPI_Query_thread")(provided);
  *provided = std::min<int>(*provided, MPI_THREAD_FUNNELED);
  return result;
}

// Every other function that lockstep calls.
#define LOCKSTEP_CHECKED(name, parameters, arguments) \
  int name parameters {                               \
    check(#name);                                     \
    return next<decltype(name)>(#name) arguments;     \
  }

LOCKSTEP_CHECKED(MPI_Abort, (MPI_Comm c, int code), (c, code))
LOCKSTEP_CHECKED(MPI_Finalize, (), ())
LOCKSTEP_CHECKED(MPI_Barrier, (MPI_Comm c), (c))
LOCKSTEP_CHECKED(MPI_Comm_dup, (MPI_Comm c, MPI_Comm* made), (c, made))
LOCKSTEP_CHECKED(MPI_Comm_split, (MPI_Comm c, int colour, int key, MPI_Comm* made), (c, colour, key, made))
LOCKSTEP_CHECKED(MPI_Comm_split_type, (MPI_Comm c, int type, int key, MPI_Info info, MPI_Comm* made),
                 (c, type, key, info, made))
LOCKSTEP_CHECKED(MPI_Comm_set_errhandler, (MPI_Comm c, MPI_Errhandler handler), (c, handler))
LOCKSTEP_CHECKED(MPI_Comm_free, (MPI_Comm * c), (c))
LOCKSTEP_CHECKED(MPI_Comm_rank, (MPI_Comm c, int* rank), (c, rank))
LOCKSTEP_CHECKED(MPI_Comm_size, (MPI_Comm c, int* size), (c, size))
LOCKSTEP_CHECKED(MPI_Comm_group, (MPI_Comm c, MPI_Group* group), (c, group))
LOCKSTEP_CHECKED(MPI_Group_size, (MPI_Group group, int* size), (group, size))
LOCKSTEP_CHECKED(MPI_Group_free, (MPI_Group * group), (group))
LOCKSTEP_CHECKED(MPI_Comm_test_inter, (MPI_Comm c, int* is_between), (c, is_between))
LOCKSTEP_CHECKED(MPI_Group_translate_ranks, (MPI_Group a, int n, const int* ranks, MPI_Group b, int* others),
                 (a, n, ranks, b, others))
LOCKSTEP_CHECKED(MPI_Bcast, (void* data, int n, MPI_Datatype t, int root, MPI_Comm c), (data, n, t, root, c))
LOCKSTEP_CHECKED(MPI_Allreduce, (const void* a, void* b, int n, MPI_Datatype t, MPI_Op op, MPI_Comm c),
                 (a, b, n, t, op, c))
LOCKSTEP_CHECKED(MPI_Iallreduce,
                 (const void* a, void* b, int n, MPI_Datatype t, MPI_Op op, MPI_Comm c, MPI_Request* request),
                 (a, b, n, t, op, c, request))
LOCKSTEP_CHECKED(MPI_Reduce, (const void* a, void* b, int n, MPI_Datatype t, MPI_Op op, int root, MPI_Comm c),
                 (a, b, n, t, op, root, c))
LOCKSTEP_CHECKED(MPI_Allgather, (const void* a, int n, MPI_Datatype t, void* b, int m, MPI_Datatype u, MPI_Comm c),
                 (a, n, t, b, m, u, c))
LOCKSTEP_CHECKED(MPI_Allgatherv,
                 (const void* a, int n, MPI_Datatype t, void* b, const int* m, const int* at, MPI_Datatype u,
                  MPI_Comm c),
                 (a, n, t, b, m, at, u, c))
LOCKSTEP_CHECKED(MPI_Gatherv,
                 (const void* a, int n, MPI_Datatype t, void* b, const int* m, const int* at, MPI_Datatype u, int root,
                  MPI_Comm c),
                 (a, n, t, b, m, at, u, root, c))
LOCKSTEP_CHECKED(MPI_Alltoallv,
                 (const void* a, const int* n, const int* from, MPI_Datatype t, void* b, const int* m, const int* at,
                  MPI_Datatype u, MPI_Comm c),
                 (a, n, from, t, b, m, at, u, c))
LOCKSTEP_CHECKED(MPI_Test, (MPI_Request * request, int* done, MPI_Status* status), (request, done, status))
LOCKSTEP_CHECKED(MPI_Is_thread_main, (int* is_main), (is_main))
LOCKSTEP_CHECKED(MPI_Error_string, (int code, char* text, int* length), (code, text, length))

}  // extern "C"
