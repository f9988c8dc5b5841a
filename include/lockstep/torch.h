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
 * sentence. The model's weights are then unchanged, and it can be used again; only running statistics may have changed
 * in the forward pass. A handle that is NULL or was freed is a failure of that rank alone. */
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

/** An array of the program, contiguous and row-major as in C. The first dimension counts rows. Each row is a sample,
 * such as a point or a time. All arrays of a call have the same number of rows.
 *
 * Fortran stores the first dimension contiguously. So `a(nx, ny, rows)` is an array of shape {rows, ny, nx} without a
 * copy, and the model sees this shape. */
typedef struct lockstep_array {
  void* values;   /**< only read, except as outputs. May be NULL if there are no elements */
  int type;       /**< a lockstep_type */
  int dimensions; /**< 1 to LOCKSTEP_DIMENSIONS */
  int64_t shape[LOCKSTEP_DIMENSIONS];
} lockstep_array;

/** How a model is trained, the same on every rank. Begin with LOCKSTEP_MODEL_OPTIONS. */
typedef struct lockstep_model_options {
  size_t size; /**< sizeof(lockstep_model_options): tells the library which members the program knows */

  /** "sgd", "adam", "adamw" or "rmsprop", of LibTorch, which make the same steps as Python's torch.optim. */
  const char* optimizer;

  /** The loss that a step minimizes: the mean over the rows of all ranks, for each output of the model and its target:
   *
   * - "mse", "l1", "smooth_l1": of their differences
   * - "binary_cross_entropy_with_logits"
   * - "cross_entropy": the targets are numbers of classes. Rows with the target -100 do not count
   * - "script": what the model's own method `loss` returns for all outputs and targets, in this order: a mean over rows
   *
   * The losses of several outputs are added up. */
  const char* loss;

  double learning_rate;
  double weight_decay; /**< 0, the default, for none. Only "adamw" keeps it out of the gradient */
  double momentum;     /**< of "sgd" and "rmsprop"; 0 for none */
  double beta1, beta2; /**< of "adam" and "adamw" */
  double epsilon;      /**< of all but "sgd" */
  double clip_norm;    /**< scales the mean gradient down to this global norm if it is longer; 0 for none */

  /** If not 0, the batch of each step is cut into this number of shards, one for each rank or more. Each rank passes
   * the rows of its own shards (lockstep_model_shards), in order, the same number for each shard. If `threads` is 1,
   * too, the weights have the same bits on any number of ranks. */
  int shards;

  /** With how many threads a rank computes during these calls; 0: with as many as the program uses (OMP_NUM_THREADS).
   * The default is 1, since most programs have a rank for each core. May differ between ranks. */
  int threads;

  /** Seeds what dropout and the like draw, together with the step and the shard or, without shards, the rank. */
  uint64_t seed;
} lockstep_model_options;

/** The defaults: AdamW without weight decay, and the mean square error. */
#define LOCKSTEP_MODEL_OPTIONS \
  { sizeof(lockstep_model_options), "adamw", "mse", 1e-3, 0, 0, 0.9, 0.999, 1e-8, 0, 0, 1, 0 }

/** COLL over the group, blocking. Loads a module that torch.jit.script or torch.jit.trace has made and its `save` has
 * written. Only rank 0 of the group reads `file`; all ranks get the model. `options` may be NULL. On failure `*model`
 * is NULL, on all ranks. Free the model before the group.
 *
 * LOCKSTEP_USER_INPUT for an option that is wrong, LOCKSTEP_MISMATCH if ranks name different files or options,
 * LOCKSTEP_CHECKPOINT on rank 0 if the file cannot be read, and on all ranks if it holds something else. */
LOCKSTEP_C_API int lockstep_model_load(lockstep_group* group, const char* file, const lockstep_model_options* options,
                                       lockstep_model** model, const char* at);

/** COLL, blocking. Makes one step: calls `forward` with the inputs, computes the loss, adds up the gradients of all
 * ranks, and lets the optimizer change the weights. Ranks may have different numbers of rows, or none, and every row
 * counts equally. `*loss` becomes the mean over the rows of all ranks before the step, the same on every rank. `loss`
 * may be NULL. If no rank has rows, nothing changes.
 *
 * Numbers of floating-point types are converted to the type of the model's parameters. The arrays are copied. */
LOCKSTEP_C_API int lockstep_model_train(lockstep_model* model, const lockstep_array* inputs, int input_count,
                                        const lockstep_array* targets, int target_count, double* loss, const char* at);

/** LOCAL. Calls `forward` with the inputs, in evaluation mode, and writes the results into the outputs, which must have
 * their shapes. Floating-point numbers are converted to the type of the array. On failure, the outputs are unspecified.
 */
LOCKSTEP_C_API int lockstep_model_infer(lockstep_model* model, const lockstep_array* inputs, int input_count,
                                        const lockstep_array* outputs, int output_count, const char* at);

/** COLL, blocking. Rank 0 of the group writes the model: its weights as safetensors if the name ends in ".safetensors",
 * otherwise a script, in evaluation mode, which lockstep_model_load and Python's torch.jit.load read. It replaces the
 * file completely or not at all. */
LOCKSTEP_C_API int lockstep_model_save(lockstep_model* model, const char* file, const char* at);

/** COLL, blocking. Writes all that a training needs to go on to the same bits as `folder`/step-N: weights, state of the
 * optimizer and number of steps, for any number of ranks. Returns when it would survive a crash of the machine. Keeps
 * the newest three. Checkpoints of later steps, which this training has not made, become step-N.aside. Until the model
 * is freed or uses another folder, no other model or process can write there. `folder` may not be called latest, best
 * or step-N. LOCKSTEP_CHECKPOINT on rank 0 if it cannot be written. */
LOCKSTEP_C_API int lockstep_model_checkpoint(lockstep_model* model, const char* folder, const char* at);

/** COLL, blocking. Goes on from the newest complete checkpoint in the folder `from`, or from the checkpoint that `from`
 * names, such as "run/step-400", "run/best" or "run/step-400.aside". `*steps` becomes the number of steps made. If the
 * folder holds no checkpoint, it becomes -1, and nothing else changes. Restores the learning rate, too. If `from` ends
 * in ".safetensors", takes only the weights. `steps` may be NULL.
 *
 * LOCKSTEP_CHECKPOINT on rank 0 for a checkpoint of another model, optimizer or loss, or one that is damaged. Weights
 * that lack some of the model's, or have others, are LOCKSTEP_CHECKPOINT on all ranks; those that fit are taken. */
LOCKSTEP_C_API int lockstep_model_restore(lockstep_model* model, const char* from, int64_t* steps, const char* at);

/** COLL, blocking. Sets the learning rate of the next steps: positive and finite. */
LOCKSTEP_C_API int lockstep_model_set_learning_rate(lockstep_model* model, double rate, const char* at);

/** LOCAL. This rank's shards: from `*first` on and before `*last`, counted from 0. All ranks have equally many if the
 * numbers of shards and ranks are powers of two. Otherwise they may differ: of 8 shards, 3 ranks have 2, 3 and 3; of 5
 * shards, 2 ranks have 2 and 3. LOCKSTEP_FAILURE if the options have no shards. */
LOCKSTEP_C_API int lockstep_model_shards(const lockstep_model* model, int* first, int* last);

/** LOCAL. The number of steps made, also before a restored checkpoint; -1 if `model` is not a model. */
LOCKSTEP_C_API int64_t lockstep_model_steps(const lockstep_model* model);

/** LOCAL. `*digest` becomes a digest of all parameters, the same on every rank: xxHash64 of their bytes, in the order
 * of the model, as weights_digest(net.variables()) in C++. */
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
