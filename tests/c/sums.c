/* Sums and broadcasts, of inputs that differ on each rank, against results by hand. */
#include "checks.h"

/* In the fixed order a small number is lost beside large ones, and an exact sum keeps it. By number of ranks. */
static const double large_f64[4] = {1e16, 1, -1e16, 1}, fixed_f64[5] = {0, 1e16, 1e16, 0, 0},
                    exact_f64[5] = {0, 1e16, 1e16, 1, 2};
static const float large_f32[4] = {1e8f, 1, -1e8f, 1}, fixed_f32[5] = {0, 1e8f, 1e8f, 0, 0},
                   exact_f32[5] = {0, 1e8f, 1e8f, 1, 2};

static void test_f64(lockstep_group* all) {
  double send[3], sums[3];
  int i;
  for (i = 0; i < 3; ++i) send[i] = large_f64[test_rank] * (1 << i);
  CHECK(lockstep_all_reduce(all, send, sums, 3, LOCKSTEP_F64, LOCKSTEP_SUM) == LOCKSTEP_OK);
  CHECK(sums[0] == fixed_f64[test_ranks]);
  CHECK(send[0] == large_f64[test_rank] && send[2] == large_f64[test_rank] * 4);
  CHECK(lockstep_all_reduce(all, send, sums, 3, LOCKSTEP_F64, LOCKSTEP_EXACT_SUM) == LOCKSTEP_OK);
  for (i = 0; i < 3; ++i) CHECK(sums[i] == exact_f64[test_ranks] * (1 << i));
  CHECK(lockstep_all_reduce(all, LOCKSTEP_IN_PLACE, send, 3, LOCKSTEP_F64, LOCKSTEP_EXACT_SUM) == LOCKSTEP_OK);
  for (i = 0; i < 3; ++i) CHECK(send[i] == sums[i]);
}

static void test_f32(lockstep_group* all) {
  float value = large_f32[test_rank], sum = 0;
  CHECK(lockstep_all_reduce(all, &value, &sum, 1, LOCKSTEP_F32, LOCKSTEP_SUM) == LOCKSTEP_OK);
  CHECK(sum == fixed_f32[test_ranks]);
  CHECK(lockstep_all_reduce(all, &value, &value, 1, LOCKSTEP_F32, LOCKSTEP_EXACT_SUM) == LOCKSTEP_OK);
  CHECK(value == exact_f32[test_ranks]);
}

static void test_integers(lockstep_group* all) {
  int64_t wide = (int64_t)1 << (9 * test_rank + 30), sum = 0;
  int64_t expected = 0;
  int32_t narrow = 1 << test_rank;
  int op, rank;
  for (rank = 0; rank < test_ranks; ++rank) expected += (int64_t)1 << (9 * rank + 30);
  for (op = LOCKSTEP_SUM; op <= LOCKSTEP_EXACT_SUM; ++op) {
    CHECK(lockstep_all_reduce(all, &wide, &sum, 1, LOCKSTEP_I64, op) == LOCKSTEP_OK);
    CHECK(sum == expected);
  }
  CHECK(lockstep_all_reduce(all, LOCKSTEP_IN_PLACE, &narrow, 1, LOCKSTEP_I32, LOCKSTEP_SUM) == LOCKSTEP_OK);
  CHECK(narrow == (1 << test_ranks) - 1);
  CHECK(lockstep_all_reduce(all, LOCKSTEP_IN_PLACE, NULL, 0, LOCKSTEP_F64, LOCKSTEP_SUM) == LOCKSTEP_OK);
}

/* Rank r brings r + 1 numbers, and rank 0 one that only an exact sum keeps. */
static void test_all_numbers(lockstep_group* all) {
  double numbers[4] = {1e-30, 3, 5, 7}, sum = 0, expected = 0;
  float singles[4], single = 0;
  int64_t integers[4], total = 0;
  int i, rank;
  if (test_rank > 0) numbers[0] = test_rank == 1 ? 1e20 : -1e20;
  for (i = 0; i < 4; ++i) {
    singles[i] = (float)(i + 1);
    integers[i] = i + 1;
  }
  CHECK(lockstep_exact_sum(all, numbers, test_rank + 1, LOCKSTEP_F64, &sum) == LOCKSTEP_OK);
  if (test_ranks == 1) CHECK(sum == 1e-30);
  if (test_ranks == 2) CHECK(sum == 1e20);
  if (test_ranks == 3) CHECK(sum == 3 + 3 + 5);
  if (test_ranks == 4) CHECK(sum == -1e20);
  for (rank = 0; rank < test_ranks; ++rank)
    for (i = 0; i <= rank; ++i) expected += i + 1;
  CHECK(lockstep_exact_sum(all, singles, test_rank + 1, LOCKSTEP_F32, &single) == LOCKSTEP_OK);
  CHECK((double)single == expected);
  CHECK(lockstep_exact_sum(all, integers, test_rank + 1, LOCKSTEP_I64, &total) == LOCKSTEP_OK);
  CHECK((double)total == expected);
  CHECK(lockstep_exact_sum(all, NULL, 0, LOCKSTEP_F64, &sum) == LOCKSTEP_OK);
  CHECK(sum == 0);
}

static void test_broadcasts(lockstep_group* all) {
  int root;
  for (root = 0; root < test_ranks; ++root) {
    double numbers[2];
    struct {
      char name[8];
      int32_t number;
    } record;
    numbers[0] = 10 * test_rank + 1;
    numbers[1] = 10 * test_rank + 2;
    memset(&record, 0, sizeof record);
    (void)snprintf(record.name, sizeof record.name, "r%d", test_rank);
    record.number = test_rank;
    CHECK(lockstep_broadcast(all, numbers, 2, LOCKSTEP_F64, root) == LOCKSTEP_OK);
    CHECK(numbers[0] == 10 * root + 1 && numbers[1] == 10 * root + 2);
    CHECK(lockstep_broadcast(all, &record, sizeof record, LOCKSTEP_U8, root) == LOCKSTEP_OK);
    CHECK(record.number == root && record.name[1] == '0' + root);
  }
}

void test_sums(lockstep_group* all) {
  test_f64(all);
  test_f32(all);
  test_integers(all);
  test_all_numbers(all);
  test_broadcasts(all);
}
