// The steps of optimizers and the sum of squares: to the bit what the host computes.
#include "gpu_support.hpp"
#include "sync/update/square_blocks.hpp"
#include "sync/update/update_kernels.hpp"

using namespace lockstep;
using namespace lockstep::test;
using detail::UpdateStep;

namespace {

const UpdateStep with_everything{
    .learning_rate = 0.1, .divisor = 250, .factor = 0.7, .weight_decay = 0.01, .number = 3};

double squares(const Kernels& kernels, const Views& parts) {
  return update_of(kernels).sum_of_squares(parts);
}

}  // namespace

TEST_CASE("optimizers' steps on a GPU have the bits of the host's: no operation is fused with the next") {
  for (const DType dtype : float_types)
    for (const std::int64_t count : element_counts()) {
      CAPTURE(name_of(dtype), count);
      const Operands operands{noise(dtype, {count}, 1), noise(dtype, {count}, 2), noise(dtype, {count}, 3)};
      check_like_reference({operands[0], operands[1]}, exactly, [](const Kernels& kernels, const Views& v) {
        update_of(kernels).sgd(v[0], v[1], with_everything);
      });
      check_like_reference(operands, exactly, [](const Kernels& kernels, const Views& v) {
        for (int step = 0; step < 3; ++step) update_of(kernels).momentum(v[0], v[1], v[2], with_everything, 0.9);
      });
      // Second moments are not negative.
      const Tensor second =
          ops::generate(dtype, {count}, [&](std::int64_t i) { return 0.001 * static_cast<double>(i % 50); });
      check_like_reference({operands[0], operands[1], operands[2], second}, exactly,
                           [](const Kernels& kernels, const Views& v) {
                             UpdateStep step = with_everything;
                             for (; step.number < 6; ++step.number)
                               update_of(kernels).adamw(v[0], v[1], v[2], v[3], step, {});
                           });
    }
}

TEST_CASE("a flat update of views inside of one memory touches nothing beside them") {
  check_like_reference({noise(DType::f32, {1100}, 4)}, exactly, [](const Kernels& kernels, const Views& v) {
    update_of(kernels).momentum(v[0].slice(100, 300), v[0].slice(400, 300), v[0].slice(701, 300),
                                {.learning_rate = 0.5, .divisor = 3}, 0.25);
  });
}

TEST_CASE("the sum of squares on a GPU has the bits of the host's, over parts of both types, and reads alone") {
  // Fewer than a block has, whole blocks, and more of them than a grid.
  for (const std::int64_t count : {std::int64_t{0}, std::int64_t{1}, std::int64_t{255}, std::int64_t{4096},
                                   std::int64_t{3 * 4096 + 5}, most_blocks() * 4096 + 1}) {
    CAPTURE(count);
    const Operands operands{noise(DType::f32, {count}, 1), noise(DType::f64, {300}, 2), noise(DType::f64, {0}, 3)};
    std::vector<double> sums;
    check_like_reference(operands, exactly,
                         [&](const Kernels& kernels, const Views& v) { sums.push_back(squares(kernels, v)); });
    for (const double sum : sums) CHECK(sum == sums.front());
  }
  CHECK(gpu().update.sum_of_squares({}) == 0);
}

TEST_CASE("the sums of blocks on a GPU have the bits of the host's") {
  for (const std::int64_t count : {std::int64_t{0}, std::int64_t{255}, std::int64_t{3 * 4096 + 5}}) {
    const Operands operands{noise(DType::f32, {count}, 1), noise(DType::f64, {detail::square_blocks(count)}, 2)};
    check_like_reference(operands, exactly,
                         [](const Kernels& kernels, const Views& v) { update_of(kernels).block_squares(v[0], v[1]); });
  }
}

TEST_CASE("what is not finite shows in a GPU's sum of squares") {
  for (const double bad : {not_a_number, ops::infinity}) {
    const Tensor x = ops::filled(DType::f32, {10000}, 1);
    x.view().elements<float>()[9000] = static_cast<float>(bad);
    CHECK_FALSE(std::isfinite(gpu().update.sum_of_squares(std::vector{OnGpu{x}.view()})));
  }
}
