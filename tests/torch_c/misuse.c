/* Models that are used wrongly, on all ranks or on one. */
#include <pthread.h>

#include "models.h"

static int is_last(void) {
  return test_rank == test_ranks - 1;
}

/* A call that fails on rank `culprit` by `code`, of which the others hear as `more` says. */
#define CHECK_FAILS_ON(culprit, call, code, text)                 \
  do {                                                            \
    char named[32];                                               \
    (void)snprintf(named, sizeof named, "replica %d (", culprit); \
    if (test_rank == (culprit))                                   \
      CHECK_REFUSED(call, code, text, "");                        \
    else                                                          \
      CHECK_REFUSED(call, LOCKSTEP_PEER_FAILED, text, named);     \
  } while (0)

static void test_loads(lockstep_group* all) {
  lockstep_model_options options = LOCKSTEP_MODEL_OPTIONS;
  lockstep_model* model = NULL;
  const char* const net = in_folder("net.pt");
  CHECK_REFUSED(lockstep_model_load(NULL, net, NULL, &model), LOCKSTEP_FAILURE,
                "lockstep_model_load (misuse.c:", "the group is NULL");
  CHECK_REFUSED(lockstep_model_load(all, NULL, NULL, &model), LOCKSTEP_FAILURE, "the file is NULL", "misuse.c:");
  CHECK_REFUSED(lockstep_model_load(all, "", NULL, &model), LOCKSTEP_FAILURE, "the file is empty", "");
  CHECK_REFUSED(lockstep_model_load(all, net, NULL, NULL), LOCKSTEP_FAILURE, "place for the model is NULL", "");
  options.size = 8;
  CHECK_REFUSED(lockstep_model_load(all, net, &options, &model), LOCKSTEP_FAILURE, "size 8", "LOCKSTEP_MODEL_OPTIONS");
  options = options_of("adagrad", "mse");
  CHECK_REFUSED(lockstep_model_load(all, net, &options, &model), LOCKSTEP_USER_INPUT, "optimizer 'adagrad' is unknown",
                "'adamw'");
  options = options_of("sgd", "rmse");
  CHECK_REFUSED(lockstep_model_load(all, net, &options, &model), LOCKSTEP_USER_INPUT, "loss 'rmse' is unknown",
                "'mse', 'smooth_l1', 'script'");
  options.loss = NULL;
  CHECK_REFUSED(lockstep_model_load(all, net, &options, &model), LOCKSTEP_USER_INPUT, "the loss is NULL", "");
  options = options_of("adamw", "mse");
  options.momentum = 0.5;
  CHECK_REFUSED(lockstep_model_load(all, net, &options, &model), LOCKSTEP_USER_INPUT, "momentum 0.5", "'adamw'");
  options.momentum = 0;
  options.learning_rate = -1;
  CHECK_REFUSED(lockstep_model_load(all, net, &options, &model), LOCKSTEP_USER_INPUT, "learning rate -1", "");
  options.learning_rate = 0.01;
  options.shards = test_ranks == 1 ? -1 : test_ranks - 1;
  CHECK_REFUSED(lockstep_model_load(all, net, &options, &model), LOCKSTEP_USER_INPUT, "shards on", "");
  CHECK_FAILS_ON(0, lockstep_model_load(all, in_folder("none.pt"), NULL, &model), LOCKSTEP_CHECKPOINT, "none.pt");
  CHECK_REFUSED(lockstep_model_load(all, in_folder("rubbish.pt"), NULL, &model), LOCKSTEP_CHECKPOINT, "rubbish.pt",
                "LibTorch: ");
  CHECK(model == NULL);
  if (test_ranks == 1) return;
  options = options_of(is_last() ? "lion" : "adamw", "mse");
  if (is_last())
    CHECK_REFUSED(lockstep_model_load(all, net, &options, &model), LOCKSTEP_USER_INPUT, "optimizer 'lion'", "");
  else
    CHECK(lockstep_model_load(all, net, &options, &model) != LOCKSTEP_OK &&
          strstr(lockstep_last_error(), "optimizer 'lion'") != NULL);
  options = options_of("adamw", is_last() ? "l1" : "mse");
  CHECK_REFUSED(lockstep_model_load(all, net, &options, &model), LOCKSTEP_MISMATCH, "adamw, mse", "adamw, l1");
  CHECK_REFUSED(lockstep_model_load(all, is_last() ? in_folder("pair.pt") : net, NULL, &model), LOCKSTEP_MISMATCH,
                "net.pt", "pair.pt");
  CHECK(model == NULL);
  CHECK_IN_STEP(all);
}

static void test_arrays(lockstep_group* all) {
  lockstep_model* model = load(all, "net.pt", NULL);
  const uint64_t digest = digest_of(model);
  const rows_of_step rows = rows_of(0, 0, 4, "mse"), fewer = rows_of(1, 0, 3, "mse");
  lockstep_array wrong = rows.x, out = rows.y;
  int32_t integers[8];
  double loss = 77;
  CHECK_REFUSED(lockstep_model_train(model, NULL, 1, &rows.y, 1, &loss), LOCKSTEP_FAILURE, "inputs is NULL",
                "lockstep_model_train (misuse.c:");
  CHECK_REFUSED(lockstep_model_train(model, &rows.x, 0, &rows.y, 1, &loss), LOCKSTEP_FAILURE, "0 inputs", "");
  CHECK_REFUSED(lockstep_model_train(model, &rows.x, 1, &rows.y, 0, &loss), LOCKSTEP_FAILURE, "1 outputs", "0 targets");
  CHECK_REFUSED(lockstep_model_train(model, &rows.x, 1, &fewer.y, 1, &loss), LOCKSTEP_FAILURE, "targets[0] has 3 rows",
                "inputs[0] has 4");
  wrong.type = 99;
  CHECK_REFUSED(lockstep_model_train(model, &wrong, 1, &rows.y, 1, &loss), LOCKSTEP_FAILURE, "inputs[0] has type 99",
                "");
  wrong = rows.x;
  wrong.dimensions = LOCKSTEP_DIMENSIONS + 1;
  CHECK_REFUSED(lockstep_model_train(model, &wrong, 1, &rows.y, 1, &loss), LOCKSTEP_FAILURE, "9 dimensions", "1 to 8");
  wrong = rows.x;
  wrong.shape[1] = -3;
  CHECK_REFUSED(lockstep_model_train(model, &wrong, 1, &rows.y, 1, &loss), LOCKSTEP_FAILURE, "f64[4, -3]", "extents");
  wrong.shape[1] = INT64_MAX / 4;
  CHECK_REFUSED(lockstep_model_train(model, &wrong, 1, &rows.y, 1, &loss), LOCKSTEP_FAILURE, "memory can hold", "");
  wrong = rows.x;
  wrong.values = NULL;
  CHECK_REFUSED(lockstep_model_train(model, &wrong, 1, &rows.y, 1, &loss), LOCKSTEP_FAILURE, "inputs[0] is NULL", "");
  wrong.values = (char*)rows.x.values + 1;
  CHECK_REFUSED(lockstep_model_train(model, &wrong, 1, &rows.y, 1, &loss), LOCKSTEP_FAILURE, "not aligned", "");
  /* LibTorch would make all pairs of these. */
  wrong = rows.y;
  wrong.dimensions = 1;
  CHECK_REFUSED(lockstep_model_train(model, &rows.x, 1, &wrong, 1, &loss), LOCKSTEP_FAILURE, "f32[4, 2]", "f32[4]");
  /* What the model refuses on one rank fails on all, and nothing has changed. */
  wrong = rows.x;
  if (is_last()) wrong.shape[1] = 2;
  CHECK_FAILS_ON(test_ranks - 1, lockstep_model_train(model, &wrong, 1, &rows.y, 1, &loss), LOCKSTEP_FAILURE,
                 "): LibTorch: mat1 and mat2 shapes cannot be multiplied");
  wrong = rows.x;
  if (is_last()) wrong.type = 0;
  CHECK_FAILS_ON(test_ranks - 1, lockstep_model_train(model, &wrong, 1, &rows.y, 1, &loss), LOCKSTEP_FAILURE,
                 "inputs[0] has type 0");
  CHECK(loss == 77 && digest_of(model) == digest && lockstep_model_steps(model) == 0);
  /* On this rank alone. */
  CHECK_REFUSED(lockstep_model_infer(model, &rows.x, 1, NULL, 1), LOCKSTEP_FAILURE, "outputs is NULL",
                "lockstep_model_infer (misuse.c:");
  out.shape[1] = 3;
  CHECK_REFUSED(lockstep_model_infer(model, &rows.x, 1, &out, 1), LOCKSTEP_FAILURE, "outputs[0] is f64[4, 3]",
                "f32[4, 2]");
  out = rows.y;
  out.values = integers;
  out.type = LOCKSTEP_I32;
  CHECK_REFUSED(lockstep_model_infer(model, &rows.x, 1, &out, 1), LOCKSTEP_FAILURE, "i32[4, 2]", "f32[4, 2]");
  wrong.type = LOCKSTEP_F64;
  wrong.shape[1] = 1;
  CHECK_REFUSED(lockstep_model_infer(model, &wrong, 1, &rows.y, 1), LOCKSTEP_FAILURE, "): LibTorch: mat1 and mat2",
                "lockstep_model_infer (misuse.c:");
  CHECK_REFUSED(lockstep_model_infer(model, &rows.x, 1, &fewer.y, 1), LOCKSTEP_FAILURE, "outputs[0] has 3 rows", "");
  CHECK_REFUSED(lockstep_model_digest(model, NULL), LOCKSTEP_FAILURE, "digest is NULL", "");
  (void)train(model, 0, 1, "mse");
  CHECK(digest_of(model) != digest);
  CHECK(lockstep_model_free(&model) == LOCKSTEP_OK);
}

static void* use_on_other_thread(void* model) {
  uint64_t digest;
  CHECK_REFUSED(lockstep_model_digest((lockstep_model*)model, &digest), LOCKSTEP_FAILURE, "another thread", "");
  CHECK_REFUSED(lockstep_model_save((lockstep_model*)model, "net.pt"), LOCKSTEP_FAILURE, "another thread", "misuse.c:");
  return NULL;
}

static void test_states(lockstep_group* all) {
  lockstep_model_options sgd = options_of("sgd", "mse"), script = options_of("adamw", "script");
  lockstep_model *model = load(all, "net.pt", NULL), *other = load(all, "net.pt", &sgd), *freed;
  const rows_of_step rows = rows_of(0, 0, 4, "mse");
  lockstep_group* group = all;
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, use_on_other_thread, model) == 0 && pthread_join(thread, NULL) == 0);
  CHECK(lockstep_model_checkpoint(model, in_folder("mine")) == LOCKSTEP_OK);
  CHECK_REFUSED(lockstep_model_checkpoint(other, in_folder("mine/")), LOCKSTEP_FAILURE, "another model", "mine");
  CHECK_REFUSED(lockstep_model_save(model, NULL), LOCKSTEP_FAILURE, "the file is NULL", "lockstep_model_save (");
  CHECK_REFUSED(lockstep_model_checkpoint(model, NULL), LOCKSTEP_FAILURE, "the folder is NULL", "");
  CHECK_REFUSED(lockstep_model_restore(model, NULL, NULL), LOCKSTEP_FAILURE, "restore from is NULL", "");
  CHECK_REFUSED(lockstep_model_set_learning_rate(model, 0), LOCKSTEP_FAILURE, "learning rate 0", "");
  CHECK_FAILS_ON(0, lockstep_model_save(model, in_folder("none/net.pt")), LOCKSTEP_CHECKPOINT, "none");
  CHECK_FAILS_ON(0, lockstep_model_restore(model, in_folder("mine/step-9"), NULL), LOCKSTEP_CHECKPOINT, "step-9");
  CHECK_FAILS_ON(0, lockstep_model_restore(model, in_folder("mine/best"), NULL), LOCKSTEP_CHECKPOINT, "best");
  CHECK_FAILS_ON(0, lockstep_model_restore(other, in_folder("mine"), NULL), LOCKSTEP_CHECKPOINT, "optimizer");
  if (test_ranks > 1) {
    CHECK_REFUSED(lockstep_model_set_learning_rate(model, is_last() ? 0.5 : 0.25), LOCKSTEP_MISMATCH, "rate 0.25",
                  "rate 0.5");
    CHECK_REFUSED(lockstep_model_save(model, in_folder(is_last() ? "a.pt" : "b.pt")), LOCKSTEP_MISMATCH, "a.pt",
                  "b.pt");
    /* Other calls, and another model. */
    CHECK_REFUSED(is_last() ? lockstep_model_checkpoint(model, in_folder("mine"))
                            : lockstep_model_train(model, &rows.x, 1, &rows.y, 1, NULL),
                  LOCKSTEP_MISMATCH, "agree #", "merge_call #");
    CHECK_REFUSED(lockstep_model_train(is_last() ? model : other, &rows.x, 1, &rows.y, 1, NULL), LOCKSTEP_MISMATCH,
                  "misuse.c:", "strategy");
    CHECK_IN_STEP(all);
  }
  CHECK_REFUSED(lockstep_group_free(&group), LOCKSTEP_FAILURE, "2 models", "lockstep_group_free (misuse.c:");
  CHECK(group == all);
  CHECK(lockstep_model_train(model, &rows.x, 1, &rows.y, 1, NULL) == LOCKSTEP_OK);
  freed = model;
  CHECK(lockstep_model_free(&model) == LOCKSTEP_OK);
  CHECK(lockstep_model_free(&other) == LOCKSTEP_OK);
  CHECK_REFUSED(lockstep_model_train(freed, &rows.x, 1, &rows.y, 1, NULL), LOCKSTEP_FAILURE, "was freed", "misuse.c:");
  CHECK_REFUSED(lockstep_model_infer(freed, &rows.x, 1, &rows.y, 1), LOCKSTEP_FAILURE, "was freed", "");
  CHECK_REFUSED(lockstep_model_free(&freed), LOCKSTEP_FAILURE, "was freed", "");
  CHECK(lockstep_model_steps(freed) == -1 && lockstep_model_steps(NULL) == -1);
  CHECK_REFUSED(lockstep_model_free(NULL), LOCKSTEP_FAILURE, "is NULL", "");
  freed = NULL;
  CHECK(lockstep_model_free(&freed) == LOCKSTEP_OK);
  model = load(all, "drop.pt", &script);
  CHECK_REFUSED(lockstep_model_train(model, &rows.x, 1, &rows.y, 1, NULL), LOCKSTEP_FAILURE, "no method 'loss'", "");
  CHECK(lockstep_model_free(&model) == LOCKSTEP_OK);
  model = load(all, "net.pt", NULL);
  CHECK_REFUSED(lockstep_model_restore(model, in_folder("trained.safetensors"), NULL), LOCKSTEP_CHECKPOINT,
                "trained.safetensors", "expected all weights");
  CHECK(lockstep_model_free(&model) == LOCKSTEP_OK);
}

void test_misuse(lockstep_group* all) {
  test_loads(all);
  test_arrays(all);
  test_states(all);
  CHECK_IN_STEP(all);
}
