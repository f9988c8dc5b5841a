/* What C++ does beside the programs in C: it writes the scripts that they load, and trains them by the bridge itself.
 */
#ifndef LOCKSTEP_TESTS_TORCH_C_BRIDGE_H
#define LOCKSTEP_TESTS_TORCH_C_BRIDGE_H

#include <lockstep/torch.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { bridge_inputs = 3, bridge_outputs = 2, bridge_rows = 12 };

/* Numbers that differ in each step and row. */
static inline double bridge_number(int step, int row, int column) {
  return ((step * 31 + row * 7 + column * 3) % 17) / 8.0 - 1;
}

/* Of a rank's rows, from its first one of all ranks' on. Rank 0 has none in step 2. */
static inline int bridge_rows_of(int rank, int step) {
  return rank == 0 && step == 2 ? 0 : 2 * (rank + 1);
}
static inline int bridge_first_of(int rank) {
  return rank * (rank + 1);
}

/* A new folder with net.pt (three numbers to two; a loss), drop.pt (with dropout and a batch norm), pair.pt (two
 * inputs, two outputs), and rubbish.pt; and its end. */
void bridge_make_folder(char* path);
void bridge_remove_folder(const char* path);

/* The first of them. */
void bridge_write_net(const char* file);

/* COLL over the communicator. The digest of `file` after so many steps with the rows above or, in shards, with this
 * rank's part of bridge_rows rows in each. `loss` becomes that of the last step. */
uint64_t bridge_train(MPI_Fint communicator, const char* file, const char* optimizer, const char* loss_name, int steps,
                      int shards, double* loss);

/* LOCAL. With how many threads LibTorch computes outside of calls; sets it to `number` if that is positive. */
int bridge_threads(int number);

/* LOCAL. The same during LibTorch's operators since, on this thread: of the last of them. */
void bridge_watch_threads(void);
int bridge_threads_seen(void);

/* LOCAL. What the script in `file` computes of the rows of a step in evaluation mode, as `count` rows of two. */
void bridge_infer(const char* file, int step, int count, float* outputs);

#ifdef __cplusplus
}
#endif

#endif
