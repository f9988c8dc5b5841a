// Matrices on a GPU whose rows lie further apart than they are long.

#include "gpu_support.hpp"

using namespace lockstep;
using namespace lockstep::test;
using ops::padded;
using ops::without_padding;
using Matrix = Kernels::Matrix;

TEST_CASE("rows of a matrix lie a multiple of 64 elements apart on a GPU") {
  const Kernels& kernels = gpu().kernels;
  CHECK(kernels.row_stride(1) == 64);
  CHECK(kernels.row_stride(256) == 256);
  CHECK(kernels.row_stride(50257) == 50304);
}

TEST_CASE("products on a GPU do not read padding, and leave it as it is") {
  constexpr std::int64_t m = 9, n = 13, k = 21;
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16})
    for (const Transpose transpose_a : {Transpose::no, Transpose::yes})
      for (const Transpose transpose_b : {Transpose::no, Transpose::yes})
        for (const std::int64_t stride : {24, 64}) {
          CAPTURE(name_of(dtype), transpose_a == Transpose::yes, transpose_b == Transpose::yes, stride);
          const Tensor a = whole_numbers(dtype, transpose_a == Transpose::yes ? Shape{k, m} : Shape{m, k}, 1),
                       b = whole_numbers(dtype, transpose_b == Transpose::yes ? Shape{n, k} : Shape{k, n}, 2),
                       c = ops::filled(dtype, {m, n}, ops::not_a_number);
          const auto product = [&](const Kernels& kernels, const Views& v) {
            kernels.matmul({v[0], a.shape()[1]}, transpose_a, {v[1], b.shape()[1]}, transpose_b, {v[2], n});
          };
          const Tensor expected = after_reference({a, b, c}, product)[2];
          for (const std::int64_t skip : {0, 1})
            check_close(expected,
                        without_padding(
                            after_cuda({padded(a, stride), padded(b, stride), padded(c, stride)}, product, skip)[2], n),
                        exactly);
        }
}

TEST_CASE("the softmax of logits on a GPU does not read padding, and has the same bits with it") {
  constexpr std::int64_t rows = 11, classes = 37, samples = 9;
  const Tensor labels = ops::i32({0, 36, 5, 7, 7, 1, 20, 33, 2, 0, 0});
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16}) {
    CAPTURE(name_of(dtype));
    const Tensor logits = ops::noise(dtype, {rows, classes}, 1);
    std::vector<Kernels::BatchLoss> found;
    const auto softmax = [&](const Kernels& kernels, const Views& v) {
      const Matrix matrix{v[0], classes};
      found.push_back(kernels.softmax_cross_entropy(matrix, v[1], samples));
      found.push_back(kernels.softmax_cross_entropy(matrix, v[1], samples, matrix));
    };
    const Tensor expected = after_cuda({logits, labels}, softmax)[0];
    const Tensor got = without_padding(after_cuda({padded(logits, 64), labels}, softmax)[0], classes);
    CHECK(ops::same_bits(expected.view(), got.view()));
    for (const Kernels::BatchLoss& each : found) {
      CHECK(each.loss_sum == found.front().loss_sum);
      CHECK(each.correct == found.front().correct);
    }
  }
}
