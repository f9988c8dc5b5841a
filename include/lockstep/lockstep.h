/* Sums and agreements of the ranks of an MPI program, in C.
 *
 *   lockstep_group* all = NULL;
 *   if (lockstep_group_create(MPI_COMM_WORLD, NULL, &all) != LOCKSTEP_OK) return lockstep_last_code();
 *   double sums[2] = {residual, weight};
 *   if (lockstep_all_reduce(all, LOCKSTEP_IN_PLACE, sums, 2, LOCKSTEP_F64, LOCKSTEP_EXACT_SUM) != LOCKSTEP_OK)
 *     lockstep_abort();
 *   lockstep_group_free(&all);
 *
 * C99, and C++ from C++14 on. Link with liblockstep-c.so: pkg-config lockstep-c, or lockstep::c of CMake. It throws no
 * exception and installs no signal handler.
 *
 * COLL: every rank of the group calls it, in the same order as its other calls of the group. Such a call blocks, and
 * all ranks agree before a byte moves. If they call different functions, or the same one from different places or with
 * other counts, types or operations, each of them gets LOCKSTEP_MISMATCH and a sentence that says where each rank is.
 * If one of them passes an invalid argument, it gets LOCKSTEP_FAILURE, and the others LOCKSTEP_PEER_FAILED with its
 * sentence. After either, the group can be used again, and memory that would have been written is unchanged, except
 * `receive` of a lockstep_all_reduce that is not in place, which is unspecified. LOCAL: nobody else needs to call it.
 *
 * A rank that dies, or does not come for the stall timeout, ends the job with one line on stderr: see lockstep_options.
 * So does a failure that the ranks cannot agree on, such as an error of MPI's in the middle of a sum. Nothing else ends
 * the process.
 *
 * Threads: the thread that makes a process's first group makes, uses and frees all of them, until none lives. If MPI
 * provides less than MPI_THREAD_SERIALIZED, it must be the one that called MPI_Init. A call that takes a group returns
 * LOCKSTEP_FAILURE on another thread, on this rank alone. lockstep_last_error, lockstep_last_code and lockstep_version
 * may be called on any thread.
 *
 * Places: the macros with the names of functions add the place of the call. A library that calls for others may pass
 * theirs on, in parentheses: (lockstep_agree)(group, "the mesh", at). A place is "file.c:41" or any other text. Where
 * it is NULL on all ranks, they may call from different places. */
#ifndef LOCKSTEP_LOCKSTEP_H
#define LOCKSTEP_LOCKSTEP_H

#include <mpi.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define LOCKSTEP_C_API __attribute__((visibility("default")))
#define LOCKSTEP_NO_RETURN __attribute__((noreturn))
#else
#define LOCKSTEP_C_API
#define LOCKSTEP_NO_RETURN
#endif

/** Ranks that work together. Opaque. */
typedef struct lockstep_group lockstep_group;

/** What calls that may fail return. From LOCKSTEP_USER_INPUT on, also the exit codes of a process that lockstep ends.
 */
enum lockstep_code {
  LOCKSTEP_OK = 0,
  LOCKSTEP_FAILURE = 1,         /**< this rank failed: an invalid argument, or a resource that it lacks */
  LOCKSTEP_USER_INPUT = 2,      /**< the options are wrong, or not the same on all ranks */
  LOCKSTEP_MISMATCH = 3,        /**< the ranks do different things; the same on all of them */
  LOCKSTEP_PEER_FAILED = 4,     /**< another rank failed, with the text that this one gets; or is gone */
  LOCKSTEP_STALL = 5,           /**< a rank did not come for the stall timeout: told to on_lost */
  LOCKSTEP_REPLICAS_DIFFER = 6, /**< replicas of a value differ; the same on all ranks */
  LOCKSTEP_CHECKPOINT = 7,      /**< a file of a training cannot be written or read */
  LOCKSTEP_STOPPED = 75         /**< the job was asked to end early, by a part of the program in C++ */
};

/** Types of elements. */
enum lockstep_type {
  LOCKSTEP_F32 = 1, /**< float */
  LOCKSTEP_F64 = 2, /**< double */
  LOCKSTEP_I32 = 3, /**< int32_t */
  LOCKSTEP_I64 = 4, /**< int64_t */
  LOCKSTEP_U8 = 5   /**< bytes of anything, to broadcast */
};

/** How elements are added up. Integers wrap around, and have the same sum either way. */
enum lockstep_op {
  /** Pairwise, in the order of the ranks: the bits depend on the number of ranks alone. */
  LOCKSTEP_SUM = 1,
  /** Exactly, and rounded once: the bits do not depend on the number of ranks or their order. */
  LOCKSTEP_EXACT_SUM = 2
};

/** Told that the job is lost: `code` is LOCKSTEP_PEER_FAILED or LOCKSTEP_STALL, `sentence` says which rank is to blame,
 * `context` is that of the options. */
typedef void (*lockstep_on_lost)(int code, const char* sentence, void* context);

/** Options of a group, the same on every rank but for `on_lost` and `context`. Begin with LOCKSTEP_OPTIONS. */
typedef struct lockstep_options {
  size_t size; /**< sizeof(lockstep_options): tells the library which members the program knows */

  /** In seconds: how long a rank may be silent, or let others wait. Must be positive. Only the first group of a process
   * that lives decides. */
  double stall_timeout;

  /** What a rank does when a rank of the job dies or stalls. If NULL, its process ends with the code, after one line on
   * stderr for the whole job. Otherwise this function is called before that, once on each rank that is left, on another
   * thread, while the main thread may be waiting in MPI. It may save what the program has, and end the process with
   * exit, _Exit or the like. If it returns, the process ends as without it, because nothing else ends the wait. It must
   * not call this library, nor, without MPI_THREAD_MULTIPLE, MPI. It should be quick: the launcher may end all ranks a
   * second after the first. If there are several groups, the function of each is called. The late rank itself may be
   * told of another rank, which has ended because of it. */
  lockstep_on_lost on_lost;
  void* context; /**< for on_lost */
} lockstep_options;

/** The defaults: a minute, and the end of the job. */
#define LOCKSTEP_OPTIONS \
  { sizeof(lockstep_options), 60.0, NULL, NULL }

/** COLL over `communicator`, blocking. Makes a group of its ranks, in its order. It communicates over communicators of
 * its own; `communicator` may be freed afterwards. `options` may be NULL. On failure `*group` is NULL.
 *
 * Libraries that know nothing of each other may each make groups. The first group of a process begins a job of its
 * ranks, which ends with the last one. Until then, other groups of these ranks are parts of that job, so a rank of
 * another job, or of none, is refused, on all ranks. A program whose libraries use different parts of its ranks makes a
 * group of all ranks before. All ranks make, use and free groups in one common order, from which each leaves out those
 * that it is not in.
 *
 * MPI must have been started, by MPI_Init or otherwise. LOCKSTEP_FAILURE, of this rank alone, before that, after
 * MPI_Finalize, for MPI_COMM_NULL, an intercommunicator, another thread than that of the other groups, a NULL `group`
 * and options of another size. All other failures are those of all ranks. If one rank alone lacks what a job needs,
 * such as a thread, this ends the job with a line. */
LOCKSTEP_C_API int lockstep_group_create(MPI_Comm communicator, const lockstep_options* options, lockstep_group** group,
                                         const char* at);

/** The same for a communicator of Fortran's. */
LOCKSTEP_C_API int lockstep_group_create_f(MPI_Fint communicator, const lockstep_options* options,
                                           lockstep_group** group, const char* at);

/** COLL. Frees the group and sets `*group` to NULL; if the ranks are elsewhere, does neither. With the last group of
 * the job, returns when all ranks of the job have freed their last. LOCAL after MPI_Finalize, and for NULL, where it
 * does nothing. MPI_Finalize may come first: the ranks then end the job there. LOCKSTEP_FAILURE while it has models
 * (torch.h). */
LOCKSTEP_C_API int lockstep_group_free(lockstep_group** group, const char* at);

/** LOCAL. This rank's place in the group, from 0; -1 if it is none. */
LOCKSTEP_C_API int lockstep_rank(const lockstep_group* group);

/** LOCAL. The number of ranks in the group; -1 if it is none. */
LOCKSTEP_C_API int lockstep_size(const lockstep_group* group);

/** Instead of a buffer to send: the values are in the one to receive. */
#define LOCKSTEP_IN_PLACE ((const void*)-1)

/** COLL. `receive` becomes the sums of all ranks' `send`, element by element. The two may be the same, which is
 * LOCKSTEP_IN_PLACE, but must not overlap otherwise. `type` is a lockstep_type, `op` a lockstep_op. */
LOCKSTEP_C_API int lockstep_all_reduce(lockstep_group* group, const void* send, void* receive, int64_t count, int type,
                                       int op, const char* at);

/** COLL. `*result`, one element, becomes the exact sum of all numbers of all ranks, rounded once: the same, whichever
 * rank brings which of them, and how many. `count` may differ between ranks. An integer wraps around. */
LOCKSTEP_C_API int lockstep_exact_sum(lockstep_group* group, const void* values, int64_t count, int type, void* result,
                                      const char* at);

/** COLL. Every rank's `values` become those of `root`, a rank of the group. */
LOCKSTEP_C_API int lockstep_broadcast(lockstep_group* group, void* values, int64_t count, int type, int root,
                                      const char* at);

/** COLL. Returns LOCKSTEP_OK on all ranks when every rank is here, with the same label. */
LOCKSTEP_C_API int lockstep_agree(lockstep_group* group, const char* label, const char* at);

/** COLL. LOCKSTEP_MISMATCH unless `value`, of `bytes` bytes, is the same on all ranks: an option, a tolerance, a number
 * of steps. The sentence shows the values. */
LOCKSTEP_C_API int lockstep_same_on_all(lockstep_group* group, const char* name, const void* value, size_t bytes,
                                        const char* at);

/** COLL. LOCKSTEP_REPLICAS_DIFFER unless `replica`, of `bytes` bytes, is the same on all ranks. The sentence names the
 * ranks outside the majority; without one, who holds what. If `differing` is not NULL, it becomes the lowest of those
 * ranks, -1 without a majority or if nothing differs. Compares digests of 64 bits. */
LOCKSTEP_C_API int lockstep_check_replicas(lockstep_group* group, const char* name, const void* replica, size_t bytes,
                                           int* differing, const char* at);

/** COLL, called instead of another function by a rank that cannot go on, such as for want of a file: the others get
 * LOCKSTEP_PEER_FAILED with `reason`, wherever they are. Returns LOCKSTEP_FAILURE. */
LOCKSTEP_C_API int lockstep_fail(lockstep_group* group, const char* reason, const char* at);

/** LOCAL. Names what this rank does from here on, until it names something else or frees the group, for sentences about
 * ranks that are gone or late: "it was in 'assembling', computing". Keeps 48 bytes. NULL or "" names nothing. A process
 * has one name at a time. A group of one rank has nobody to tell it. */
LOCKSTEP_C_API int lockstep_phase(lockstep_group* group, const char* name);

/** LOCAL. The sentence about this thread's last call that failed, until the next one that fails; "" before the first.
 */
LOCKSTEP_C_API const char* lockstep_last_error(void);

/** LOCAL. The lockstep_code of this thread's last call that failed; LOCKSTEP_OK before the first. */
LOCKSTEP_C_API int lockstep_last_code(void);

/** LOCAL. Ends the job because of this thread's last failure: one line on stderr for all ranks that call it, and the
 * code. Does not return. */
LOCKSTEP_C_API void lockstep_abort(void) LOCKSTEP_NO_RETURN;

/** LOCAL. The version of the library, such as "0.2.0". */
LOCKSTEP_C_API const char* lockstep_version(void);

#ifdef __cplusplus
}
#endif

/** The place of a line, as functions of this header take it. */
#define LOCKSTEP_HERE __FILE__ ":" LOCKSTEP_TEXT(__LINE__)
#define LOCKSTEP_TEXT(line) LOCKSTEP_TEXT_OF(line)
#define LOCKSTEP_TEXT_OF(line) #line

#define lockstep_group_create(...) lockstep_group_create(__VA_ARGS__, LOCKSTEP_HERE)
#define lockstep_group_create_f(...) lockstep_group_create_f(__VA_ARGS__, LOCKSTEP_HERE)
#define lockstep_group_free(...) lockstep_group_free(__VA_ARGS__, LOCKSTEP_HERE)
#define lockstep_all_reduce(...) lockstep_all_reduce(__VA_ARGS__, LOCKSTEP_HERE)
#define lockstep_exact_sum(...) lockstep_exact_sum(__VA_ARGS__, LOCKSTEP_HERE)
#define lockstep_broadcast(...) lockstep_broadcast(__VA_ARGS__, LOCKSTEP_HERE)
#define lockstep_agree(...) lockstep_agree(__VA_ARGS__, LOCKSTEP_HERE)
#define lockstep_same_on_all(...) lockstep_same_on_all(__VA_ARGS__, LOCKSTEP_HERE)
#define lockstep_check_replicas(...) lockstep_check_replicas(__VA_ARGS__, LOCKSTEP_HERE)
#define lockstep_fail(...) lockstep_fail(__VA_ARGS__, LOCKSTEP_HERE)

#endif
