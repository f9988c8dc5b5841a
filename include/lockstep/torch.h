/* Models of TorchScript that the ranks of an MPI program train together, in C.
 *
 *   lockstep_model* model = NULL;
 *   lockstep_model_options options = LOCKSTEP_MODEL_OPTIONS;
 *   lockstep_array x = {cells, LOCKSTEP_F64, 2, {rows, 3}}, y = {fluxes, LOCKSTEP_F64, 2, {rows, 1}};
 *   double loss = 0;
 *   options.learning_rate = 1e-2;
 *   if (lockstep_model_load(all, "net.pt", &options, &model) != LOCKSTEP_OK) lockstep_abort();
 *   if (lockstep_model_train(model, &x, 1, &y, 1, &loss) != LOCKSTEP_OK) lockstep_abort();
 *   if (lockstep_model_infer(model, &x, 1, &y, 1) != LOCKSTEP_OK) lockstep_abort();
 *   lockstep_model_free(&model);
 *
 * Each rank of a group (lockstep.h) has a replica of the model. A step trains on the rows of all ranks, whose gradients
 * are added up, so all replicas stay the same. C99, and C++ from C++14 on. Link with liblockstep-torch-c.so: pkg-config
 * lockstep-torch-c, or lockstep::torch_c of CMake. It computes on the CPU.
 *
 * COLL, LOCAL, codes, sentences, threads and places are as in lockstep.h. A rank that fails in a COLL call, such as
 * where the model refuses the shape of its rows, gets LOCKSTEP_FAILURE, and the others LOCKSTEP_PEER_FAILED with its
 * sentence. The model is then as before, but for running statistics that a forward pass has changed, and can be used
 * again. A handle that is NULL or was freed is a failure of that rank alone. */
#ifndef LOCKSTEP_TORCH_H
#define LOCKSTEP_TORCH_H

#include <lockstep/lockstep.h>

#ifdef __cplusplus
extern "C" {
#endif

/** A model that the ranks of a group train. Opaque. */
typedef struct lockstep_model lockstep_model;

/** The most dimensions of an array. */
#define LOCKSTEP_DIMENSIONS 8

/** An array of the program's: contiguous and row-major, as in C. The first dimension counts rows,
 * each of which is a sample: another point, or another time. All arrays of a call have as many rows.
 *
 * Fortran's arrays have the first dimension together. So `a(nx, ny, rows)` is an array of shape {rows, ny, nx}, where
 * it is, and the model sees these dimensions. */
typedef struct lockstep_array {
  void* values;   /**< read by `train` and as inputs, and then not written. May be NULL without elements */
  int type;       /**< a lockstep_type */
  int dimensions; /**< 1 to LOCKSTEP_DIMENSIONS */
  int64_t shape[LOCKSTEP_DIMENSIONS];
} lockstep_array;

/** How a model is trained, the same on every rank. Begin with LOCKSTEP_MODEL_OPTIONS. */
typedef struct lockstep_model_options {
  size_t size; /**< sizeof(lockstep_model_options): tells the library which members the program knows */

  /** "sgd", "adam", "adamw" or "rmsprop": LibTorch's, which make the steps of Python's torch.optim. */
  const char* optimizer;

  /** The loss that a step minimizes: the mean over the rows of all ranks, for each output of the model and its target:
   *
   * - "mse", "l1", "smooth_l1": of their differences
   * - "binary_cross_entropy_with_logits"
   * - "cross_entropy": the targets are numbers of classes. -100 does not count
   * - "script": what the model's own method `loss` returns for all outputs and targets, in this order: a mean over rows
   *
   * With several outputs, their sum. */
  const char* loss;

  double learning_rate;
  double weight_decay; /**< 0 for none, as by default. "adamw" alone keeps it out of the gradient */
  double momentum;     /**< of "sgd" and "rmsprop"; 0 for none */
  double beta1, beta2; /**< of "adam" and "adamw" */
  double epsilon;      /**< of all but "sgd" */
  double clip_norm;    /**< scales the mean gradient down to this global norm if it is longer; 0 for none */

  /** If not 0, the batch of each step is cut into so many shards, one for each rank or more. Each rank passes the rows
   * of its own shards (lockstep_model_shards), in order, the same number for each shard. Then the weights have the same
   * bits on any number of ranks, if `threads` is 1. */
  int shards;

  /** With how many threads a rank computes, during calls alone; 0 leaves it to OMP_NUM_THREADS. By default 1, since
   * most programs have a rank for each core. May differ between ranks. */
  int threads;

  /** Decides what dropout and the like draw, together with the step and the shard or, without shards, the rank. */
  uint64_t seed;
} lockstep_model_options;

/** The defaults: AdamW without weight decay, and the mean square error. */
#define LOCKSTEP_MODEL_OPTIONS \
  { sizeof(lockstep_model_options), "adamw", "mse", 1e-3, 0, 0, 0.9, 0.999, 1e-8, 0, 0, 1, 0 }

/** COLL over the group, blocking. Loads a module that torch.jit.script or torch.jit.trace has made and `save` has
 * written, and gives it to every rank; only rank 0 of the group reads `file`. `options` may be NULL. On failure
 * `*model` is NULL, on all ranks. Free the model before the group.
 *
 * LOCKSTEP_USER_INPUT for an option that is wrong, LOCKSTEP_MISMATCH if ranks name different files or options,
 * LOCKSTEP_CHECKPOINT on rank 0 if the file cannot be read, and on all ranks if it is no such module. */
LOCKSTEP_C_API int lockstep_model_load(lockstep_group* group, const char* file, const lockstep_model_options* options,
                                       lockstep_model** model, const char* at);

/** COLL, blocking. One step: `forward` of the inputs, the loss, the gradients of all ranks, the optimizer. Ranks may
 * have different numbers of rows, or none, and each row counts as much, also in `*loss`: the mean over all ranks before
 * the step, the same on every rank. `loss` may be NULL. If no rank has rows, there is no step.
 *
 * Numbers of floating-point types are converted to the type of the model's parameters. The arrays are copied. */
LOCKSTEP_C_API int lockstep_model_train(lockstep_model* model, const lockstep_array* inputs, int input_count,
                                        const lockstep_array* targets, int target_count, double* loss, const char* at);

/** LOCAL. Writes what the model computes of the inputs into the outputs, in evaluation mode. Their shapes must be those
 * of the results; floating-point numbers are converted to the type of the array. On failure, the outputs are
 * unspecified. */
LOCKSTEP_C_API int lockstep_model_infer(lockstep_model* model, const lockstep_array* inputs, int input_count,
                                        const lockstep_array* outputs, int output_count, const char* at);

/** COLL, blocking. Rank 0 of the group writes the model: its weights as safetensors if the name ends in ".safetensors",
 * otherwise a script, in evaluation mode, which lockstep_model_load and Python's torch.jit.load read. It replaces the
 * file completely or not at all. */
LOCKSTEP_C_API int lockstep_model_save(lockstep_model* model, const char* file, const char* at);

/** COLL, blocking. Writes all that a training needs to go on to the same bits, weights, state of the optimizer and
 * number of steps, as `folder`/step-N. Returns when it would survive a crash of the machine. Keeps the newest three.
 * The number of ranks is not part of it. As long as the model lives, or until it uses another folder, no other process
 * can write there. LOCKSTEP_CHECKPOINT on rank 0 if it cannot be written. */
LOCKSTEP_C_API int lockstep_model_checkpoint(lockstep_model* model, const char* folder, const char* at);

/** COLL, blocking. Goes on from the newest complete checkpoint in the folder `from`, or from one that it names:
 * "run/step-400". `*steps` becomes the number of steps made, and -1 if the folder holds no checkpoint; then nothing
 * changes. Restores the learning rate, too. If `from` ends in ".safetensors", takes the weights alone. `steps` may be
 * NULL.
 *
 * LOCKSTEP_CHECKPOINT on rank 0 for a checkpoint of another model, optimizer or loss, or one that is damaged. Weights
 * that lack some of the model's, or have others, are LOCKSTEP_CHECKPOINT on all ranks; those that fit are taken. */
LOCKSTEP_C_API int lockstep_model_restore(lockstep_model* model, const char* from, int64_t* steps, const char* at);

/** COLL, blocking. Sets the learning rate of the next steps: positive and finite. */
LOCKSTEP_C_API int lockstep_model_set_learning_rate(lockstep_model* model, double rate, const char* at);

/** LOCAL. This rank's shards, of those that the options name: from `*first` on and before `*last`. All ranks have as
 * many if the numbers of shards and ranks are powers of two. Otherwise they may differ: of 8 shards, 3 ranks have 2, 2
 * and 4; of 5 shards, 2 ranks have 4 and 1. LOCKSTEP_FAILURE without shards. */
LOCKSTEP_C_API int lockstep_model_shards(const lockstep_model* model, int* first, int* last);

/** LOCAL. The number of steps made, also before a restored checkpoint; -1 if it is no model. */
LOCKSTEP_C_API int64_t lockstep_model_steps(const lockstep_model* model);

/** LOCAL. `*digest` becomes one of all parameters, the same on every rank: xxHash64 of their bytes, in the order of the
 * model. As weights_digest(net.variables()) in C++. */
LOCKSTEP_C_API int lockstep_model_digest(const lockstep_model* model, uint64_t* digest);

/** COLL. Frees the model and sets `*model` to NULL; if the ranks are elsewhere, does neither. LOCAL after MPI_Finalize,
 * and for NULL, where it does nothing. */
LOCKSTEP_C_API int lockstep_model_free(lockstep_model** model, const char* at);

#ifdef __cplusplus
}
#endif

#define lockstep_model_load(...) lockstep_model_load(__VA_ARGS__, LOCKSTEP_HERE)
#define lockstep_model_train(...) lockstep_model_train(__VA_ARGS__, LOCKSTEP_HERE)
#define lockstep_model_infer(...) lockstep_model_infer(__VA_ARGS__, LOCKSTEP_HERE)
#define lockstep_model_save(...) lockstep_model_save(__VA_ARGS__, LOCKSTEP_HERE)
#define lockstep_model_checkpoint(...) lockstep_model_checkpoint(__VA_ARGS__, LOCKSTEP_HERE)
#define lockstep_model_restore(...) lockstep_model_restore(__VA_ARGS__, LOCKSTEP_HERE)
#define lockstep_model_set_learning_rate(...) lockstep_model_set_learning_rate(__VA_ARGS__, LOCKSTEP_HERE)
#define lockstep_model_free(...) lockstep_model_free(__VA_ARGS__, LOCKSTEP_HERE)

#endif
