// Kernels on operands of bf16 against the reference, which computes in f32 and rounds once.
#include <array>

#include "attention_operands.hpp"
#include "gpu_support.hpp"
#include "models/ops/sequence_kernels.hpp"

using namespace lockstep;
using namespace lockstep::test;
using ops::i32;

namespace {

constexpr DType bf16 = DType::bf16, f32 = DType::f32;

/// Numbers of both signs, zeros of both signs, ties between two bf16, and what is not finite.
Tensor awkward_for_bf16(DType dtype, Shape shape, std::uint64_t seed) {
  const auto values = ops::in_double(noise(f32, shape, seed));
  const std::array special{0.,   -0.,           1.00390625,     1.01171875,   -1.00390625,
                           3e38, ops::infinity, -ops::infinity, not_a_number, 1e-40};
  return generate(dtype, shape, [&](std::int64_t i) {
    return i % 7 == 3 ? special[static_cast<std::size_t>(i / 7) % special.size()] : values[static_cast<std::size_t>(i)];
  });
}

/// Where the order of f32 operations may decide how a result is rounded: at most one element in fifty, and one more,
/// may differ.
void check_nearly(const Operands& operands, double tolerance, const auto& call) {
  compare_with_reference(operands, call, [&](std::size_t, const Tensor& expected, const Tensor& got) {
    check_close(expected, got, tolerance);
    if (expected.dtype() != bf16) return;
    const auto x = expected.view().elements<BFloat16>(), y = got.view().elements<BFloat16>();
    std::size_t apart = 0;
    for (std::size_t element = 0; element < x.size(); ++element) apart += x[element].bits != y[element].bits ? 1 : 0;
    CHECK(apart <= 1 + x.size() / 50);
  });
}

struct Product16 {
  std::int64_t m, n, k;
};

/// Nothing to add up or to write, single rows and columns, odd extents, a square b, and sums that the library may
/// split.
const std::vector<Product16> products_of_bf16{{0, 4, 3},     {4, 0, 3},   {4, 3, 0},    {1, 1, 1},
                                              {1, 10, 512},  {3, 7, 5},   {17, 33, 65}, {32, 10, 65},
                                              {10, 24, 255}, {33, 1, 31}, {6, 16, 16}};

const std::vector<Shape> shapes_of_bf16{
    {0, 3}, {1, 1}, {7, 32}, {8, 33}, {33, 257}, {5, 0}, {most_blocks() * 9 + 5, 3}};

Tensor whole_bf16(const Shape& shape, std::uint64_t seed, DType dtype = bf16) {
  return whole_numbers(dtype, shape, seed);
}

}  // namespace

TEST_CASE("a GPU rounds to bf16 as the host does, and widens exactly") {
  for (const std::int64_t count : element_counts()) {
    CAPTURE(count);
    const auto convert = [](const Kernels& kernels, const Views& v) { kernels.convert(v[0], v[1]); };
    check_like_reference({awkward_for_bf16(f32, {count}, 1), filled(bf16, {count}, 9)}, exactly, convert);
    check_like_reference({awkward_for_bf16(bf16, {count}, 1), filled(f32, {count}, 9)}, exactly, convert);
  }
}

TEST_CASE("element-wise kernels on bf16 have the host's bits on a GPU, in place too") {
  for (const std::int64_t count : element_counts()) {
    CAPTURE(count);
    const Operands operands{awkward_for_bf16(bf16, {count}, 1), awkward_for_bf16(bf16, {count}, 2),
                            noise(bf16, {count}, 3)};
    for (const std::size_t to : {2, 1, 0}) {
      check_like_reference(operands, exactly,
                           [to](const Kernels& kernels, const Views& v) { kernels.relu(v[0], v[to]); });
      check_like_reference(operands, exactly,
                           [to](const Kernels& kernels, const Views& v) { kernels.relu_gradient(v[0], v[1], v[to]); });
    }
    check_like_reference(operands, exactly, [](const Kernels& kernels, const Views& v) { kernels.add(v[2], v[0]); });
  }
}

TEST_CASE("biases added to bf16 and sums of its rows have the host's bits on a GPU") {
  for (const Shape& shape : shapes_of_bf16) {
    CAPTURE(describe(shape));
    const Operands operands{noise(bf16, shape, 1), noise(f32, {shape[1]}, 2)};
    check_like_reference(operands, exactly,
                         [](const Kernels& kernels, const Views& v) { kernels.add_bias(v[0], v[1]); });
    check_like_reference(operands, exactly,
                         [](const Kernels& kernels, const Views& v) { kernels.sum_rows(v[0], v[1]); });
  }
}

TEST_CASE("products of bf16 add up in f32 on a GPU, and are rounded once") {
  for (const DType result : {bf16, f32})
    for (const auto transpose_a : {Transpose::no, Transpose::yes})
      for (const auto transpose_b : {Transpose::no, Transpose::yes})
        for (const auto& [m, n, k] : products_of_bf16) {
          CAPTURE(name_of(result), m, n, k, transpose_a == Transpose::yes, transpose_b == Transpose::yes);
          const Shape a = transpose_a == Transpose::yes ? Shape{k, m} : Shape{m, k};
          const Shape b = transpose_b == Transpose::yes ? Shape{n, k} : Shape{k, n};
          const auto product = [=](const Kernels& kernels, const Views& v) {
            kernels.matmul(v[0], transpose_a, v[1], transpose_b, v[2]);
          };
          const Tensor c = filled(result, {m, n}, not_a_number);
          // The sums of whole numbers are exact in f32, not in bf16.
          check_like_reference({whole_bf16(a, 1), whole_bf16(b, 2), c}, exactly, product);
          // Others differ by roundings of f32, each below 2^-24 of a sum that stays below k.
          const double of_sums = rounding_of_products(f32, k);
          // So a rounding to bf16 may go the other way. It is an epsilon of the sum, which is below k, and below six
          // standard deviations, of which one is the root of k / 9.
          const double largest = std::min(static_cast<double>(k), 2 * std::sqrt(static_cast<double>(k)));
          check_nearly({noise(bf16, a, 1), noise(bf16, b, 2), c},
                       result == f32 ? of_sums : of_sums + largest * epsilon(bf16), product);
        }
}

TEST_CASE("layers of bf16 add up in f32 on a GPU, with their bias, and are rounded once") {
  for (const DType result : {bf16, f32})
    for (const auto activation : {Activation::none, Activation::relu})
      for (const auto& [m, n, k] : products_of_bf16) {
        CAPTURE(name_of(result), m, n, k, activation == Activation::relu);
        const auto linear = [=](const Kernels& kernels, const Views& v) {
          kernels.linear(v[0], v[1], v[2], activation, v[3]);
        };
        // A quarter between two whole numbers: whoever rounds before adding it gets another sum.
        const Tensor bias = generate(f32, {n}, [](std::int64_t i) { return static_cast<double>(i % 9) / 4 - 1; });
        const Tensor y = filled(result, {m, n}, not_a_number);
        check_like_reference({whole_bf16({m, k}, 1), whole_bf16({k, n}, 2), bias, y}, exactly, linear);
        const Operands after =
            after_cuda({whole_bf16({m, k}, 1), whole_bf16({k, n}, 2), filled(f32, {n}, not_a_number), y}, linear);
        for (const double value : ops::in_double(after.back())) CHECK(std::isnan(value));
      }
}

TEST_CASE("sums of products of bf16 on a GPU are those of the host") {
  for (const auto& [m, n, k] : products_of_bf16) {
    CAPTURE(m, n, k);
    check_like_reference({whole_bf16({k, m}, 1), whole_bf16({k, n}, 2), filled(f32, {m, n}, not_a_number)}, exactly,
                         [](const Kernels& kernels, const Views& v) {
                           kernels.sum_of_products(std::vector<Kernels::Factors>(3, {v[0], v[1]}), v[2]);
                         });
  }
}

TEST_CASE("products and layers of bf16 on a GPU repeat their bits") {
  const Tensor x = noise(bf16, {20, 200}, 1), weight = noise(bf16, {200, 24}, 2), y = filled(bf16, {20, 24}, 0);
  check_repeats({x, weight, y}, [](const Kernels& kernels, const Views& v) {
    kernels.matmul(v[0], Transpose::no, v[1], Transpose::no, v[2]);
  });
  check_repeats({x, weight, noise(f32, {24}, 3), y}, [](const Kernels& kernels, const Views& v) {
    kernels.linear(v[0], v[1], v[2], Activation::relu, v[3]);
  });
}

TEST_CASE("softmax cross-entropy of bf16 on a GPU is the reference's, in place too") {
  for (const Shape& shape :
       {Shape{1, 1}, Shape{7, 31}, Shape{9, 33}, Shape{257, 10}, Shape{most_blocks() * 9 + 5, 3}}) {
    CAPTURE(describe(shape));
    const auto [rows, classes] = std::pair{shape[0], shape[1]};
    const auto values = ops::in_double(noise(f32, shape, 1));
    const Tensor logits =
        generate(bf16, shape, [&](std::int64_t i) { return 10 * values[static_cast<std::size_t>(i)]; });
    std::vector<std::int32_t> classes_of_rows;
    for (std::int64_t row = 0; row < rows; ++row)
      classes_of_rows.push_back(static_cast<std::int32_t>(row * row % classes));
    const Tensor labels = Tensor::from(classes_of_rows, {rows});
    const std::int64_t samples = rows - rows / 4;
    std::vector<Kernels::BatchLoss> found;
    for (const std::size_t to : {0, 2})
      check_nearly({logits, labels, filled(bf16, shape, not_a_number)}, epsilon(bf16),
                   [&](const Kernels& kernels, const Views& v) {
                     found.push_back(kernels.softmax_cross_entropy(v[0], v[1], samples));
                     found.push_back(kernels.softmax_cross_entropy(v[0], v[1], samples, v[to]));
                   });
    for (const Kernels::BatchLoss& each : found) {
      CHECK(each.correct == found.front().correct);
      CHECK(std::abs(each.loss_sum - found.front().loss_sum) <=
            static_cast<double>(samples * (classes + 8)) * epsilon(f32) +
                rounding_of_sums(DType::f64, 2 * static_cast<double>(samples), found.front().loss_sum));
    }
  }
}

TEST_CASE("lookups in bf16 on a GPU and their sums have the host's bits") {
  const Tensor indices = i32({3, 0, 3, 6, 0, 3});
  for (const std::int64_t width : {1, 33, 300}) {
    check_like_reference(
        {noise(bf16, {7, width}, 1), indices, filled(bf16, {6, width}, 9)}, exactly,
        [](const Kernels& kernels, const Views& v) { kernels.sequence().gather_rows(v[0], v[1], v[2]).wait(); });
    check_like_reference(
        {noise(bf16, {6, width}, 1), indices, noise(f32, {7, width}, 2)}, exactly,
        [](const Kernels& kernels, const Views& v) { kernels.sequence().scatter_add_rows(v[0], v[1], v[2]); });
  }
}

TEST_CASE("layer norm in bf16 on a GPU is the reference's, of x in either type") {
  for (const DType of_x : {bf16, f32})
    for (const auto& [rows, width] :
         {std::pair{1, 1}, std::pair{9, 33}, std::pair{33, 5}, std::pair{0, 3}, std::pair{2, 768}}) {
      CAPTURE(name_of(of_x), rows, width);
      // As in f32, see there; beside it, the results are rounded to bf16 where they are bf16.
      const double some = 16 * epsilon(f32) + 2 * rounding_of_sums(f32, additions_of_row(width), 1);
      const Tensor x = noise(of_x, {rows, width}, 1), gain = noise(f32, {width}, 2), sum = filled(f32, {width}, 9);
      const Operands forward{x, gain, noise(f32, {width}, 3), filled(bf16, {rows, width}, 9),
                             filled(f32, {rows, 2}, 9)};
      const auto norm = [](const Kernels& kernels, const Views& v) {
        kernels.sequence().layer_norm(
            {.x = v[0], .gain = v[1], .bias = v[2], .epsilon = 0.25, .y = v[3], .moments = v[4]});
      };
      check_nearly(forward, 2 * epsilon(bf16), norm);
      const Tensor moments = after_reference(forward, norm)[4];
      check_close(moments, after_cuda(forward, norm)[4], some);
      const Operands backward{x,   gain, moments, noise(bf16, {rows, width}, 4), filled(of_x, {rows, width}, 9),
                              sum, sum};
      const auto gradient = [](const Kernels& kernels, const Views& v) {
        kernels.sequence().layer_norm_gradient(
            {.x = v[0], .gain = v[1], .moments = v[2], .dy = v[3], .dx = v[4], .d_gain = v[5], .d_bias = v[6]});
      };
      check_nearly(backward, of_x == f32 ? some : 4 * epsilon(bf16), gradient);
      const Operands here = after_reference(backward, gradient), there = after_cuda(backward, gradient);
      check_close(here[5], there[5], exactly);
      check_close(here[6], there[6], exactly);
    }
}

TEST_CASE("GELU in bf16 on a GPU is the reference's, also in place") {
  for (const std::int64_t count : {0, 1, 257, 1000})
    for (const std::size_t to : {2, 1}) {
      const Operands operands{noise(bf16, {count}, 1), noise(bf16, {count}, 2), filled(bf16, {count}, 9)};
      check_nearly(operands, epsilon(bf16),
                   [=](const Kernels& kernels, const Views& v) { kernels.sequence().gelu(v[0], v[to == 1 ? 0 : 2]); });
      check_nearly(operands, 2 * epsilon(bf16), [=](const Kernels& kernels, const Views& v) {
        kernels.sequence().gelu_gradient(v[0], v[1], v[to]);
      });
    }
}

TEST_CASE("causal attention in bf16 on a GPU rounds probabilities and gradients of scores, as the reference does") {
  for (const AttentionSizes& sizes : {AttentionSizes{1, 1, 1, 1}, AttentionSizes{2, 3, 1, 4},
                                      AttentionSizes{3, 8, 2, 3}, AttentionSizes{2, 33, 3, 5}}) {
    CAPTURE(sizes.windows, sizes.context, sizes.heads, sizes.head_width);
    check_nearly(attention_operands(bf16, sizes), epsilon(bf16), attend(sizes));
    check_nearly(gradient_operands(bf16, sizes), 4 * epsilon(bf16), attend_gradient(sizes));
  }
  const AttentionSizes sizes{2, 33, 3, 5};
  check_repeats(attention_operands(bf16, sizes), attend(sizes));
  check_repeats(gradient_operands(bf16, sizes), attend_gradient(sizes));
}
