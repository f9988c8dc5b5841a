// Matrices whose rows lie further apart than they are long.

#include <catch2/catch.hpp>

#include "models/ops/checks.hpp"
#include "ops_support.hpp"

using namespace lockstep;
using namespace lockstep::ops;
using Matrix = Kernels::Matrix;
using Transpose = Kernels::Transpose;

namespace {

constexpr DType all_types[] = {DType::f32, DType::f64, DType::bf16};

Shape shape_of(Transpose transpose, std::int64_t rows, std::int64_t columns) {
  return transpose == Transpose::yes ? Shape{columns, rows} : Shape{rows, columns};
}

}  // namespace

TEST_CASE("products do not read padding, and have the bits of matrices without it") {
  for (const auto& kernels : all_kernels())
    for (const DType dtype : all_types)
      for (const auto& [m, n, k] : {MatmulSizes{3, 7, 5}, MatmulSizes{24, 40, 33}})
        for (const Transpose transpose_a : {Transpose::no, Transpose::yes})
          for (const Transpose transpose_b : {Transpose::no, Transpose::yes}) {
            CAPTURE(kernels->name(), name_of(dtype), m, transpose_a == Transpose::yes, transpose_b == Transpose::yes);
            const Tensor a = noise(dtype, shape_of(transpose_a, m, k), 1),
                         b = noise(dtype, shape_of(transpose_b, k, n), 2), c = filled(dtype, {m, n}, not_a_number);
            kernels->matmul(a.view(), transpose_a, b.view(), transpose_b, c.view());
            const Tensor wide_a = padded(a, a.shape()[1] + 3), wide_b = padded(b, b.shape()[1] + 1),
                         wide_c = filled(dtype, {m, n + 2}, not_a_number);
            kernels->matmul({wide_a.view(), a.shape()[1]}, transpose_a, {wide_b.view(), b.shape()[1]}, transpose_b,
                            {wide_c.view(), n});
            CHECK(same_bits(without_padding(wide_c, n).view(), c.view()));
          }
}

TEST_CASE("the softmax of logits does not read padding, which is no class") {
  constexpr std::int64_t rows = 4, classes = 5, samples = 3;
  const Tensor labels = i32({4, 0, 2, 9});
  for (const auto& kernels : all_kernels())
    for (const DType dtype : all_types) {
      CAPTURE(kernels->name(), name_of(dtype));
      const Tensor logits = noise(dtype, {rows, classes}, 1), d = Tensor::zeros(dtype, {rows, classes});
      const Kernels::BatchLoss expected =
          kernels->softmax_cross_entropy(logits.view(), labels.view(), samples, d.view());
      const Tensor wide = padded(logits, classes + 3);
      const Matrix matrix{wide.view(), classes};
      const Kernels::BatchLoss evaluated = kernels->softmax_cross_entropy(matrix, labels.view(), samples);
      const Kernels::BatchLoss trained = kernels->softmax_cross_entropy(matrix, labels.view(), samples, matrix);
      for (const Kernels::BatchLoss& found : {evaluated, trained}) {
        CHECK(found.loss_sum == expected.loss_sum);
        CHECK(found.correct == expected.correct);
      }
      CHECK(same_bits(without_padding(wide, classes).view(), d.view()));
      CHECK(refusal([&] {
              kernels->softmax_cross_entropy(matrix, i32({0, 5, 0, 0}).view(), samples);
            }) ==
            "softmax_cross_entropy: label 5 of row 1 is outside of [0, 5), the classes of the first 5 columns of " +
                describe(wide.view()));
    }
}

TEST_CASE("matrices with padding that do not fit are refused") {
  const Tensor wide = Tensor::zeros(DType::f32, {2, 8}), other = Tensor::zeros(DType::f32, {2, 8}),
               square = Tensor::zeros(DType::f32, {2, 2});
  for (const auto& kernels : all_kernels()) {
    const auto product = [&](const Matrix& a, const Matrix& c) {
      return refusal([&] { kernels->matmul(a, Transpose::no, square.view(), Transpose::no, c); });
    };
    CHECK(product({wide.view(), 3}, {other.view(), 2}) ==
          "matmul: the first 3 columns of f32[2, 8] times f32[2, 2] does not give the first 2 columns of f32[2, 8]");
    for (const std::int64_t columns : {-1, 9})
      CHECK(product({wide.view(), columns}, {other.view(), 2}) ==
            "matmul: " + std::to_string(columns) + " columns are not in f32[2, 8]");
    CHECK(product({wide.view(), 2}, {wide.view(), 2}) == "matmul: f32[2, 8] and f32[2, 8] overlap in memory");
    CHECK(refusal([&] {
            kernels->softmax_cross_entropy({wide.view(), 3}, i32({0, 0}).view(), 2, {other.view(), 4});
          }) ==
          "softmax_cross_entropy: the first 3 columns of f32[2, 8] and the first 4 columns of f32[2, 8] are not "
          "of one shape");
    CHECK(kernels->row_stride(7) == 7);
  }
}
