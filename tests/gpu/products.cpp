// Products by cuBLASLt against the reference: to the bit where the numbers are whole, and close where they are not.
#include "gpu_support.hpp"

using namespace lockstep;
using namespace lockstep::test;

namespace {

struct Product {
  std::int64_t m, n, k;
  Transpose transpose_a = Transpose::no;
  Transpose transpose_b = Transpose::no;

  Shape a() const { return transpose_a == Transpose::yes ? Shape{k, m} : Shape{m, k}; }
  Shape b() const { return transpose_b == Transpose::yes ? Shape{n, k} : Shape{k, n}; }
};

/// Nothing to add up or to write, single rows and columns, squares, odd extents, and the layers of the MLP. On a
/// simulated GPU, whose products are not those of silicon and take their time, without the large ones.
std::vector<Product> sizes() {
  std::vector<Product> all{{0, 4, 3}, {4, 0, 3}, {4, 3, 0},   {1, 1, 1},    {1, 10, 512},
                           {3, 7, 5}, {6, 6, 6}, {2, 2, 255}, {32, 10, 65}, {33, 1, 31}};
  if (!grids_are_limited())
    all.insert(all.end(),
               {{17, 33, 129}, {64, 128, 200}, {256, 10, 512}, {10, 512, 256}, {128, 512, 784}, {257, 255, 1000}});
  return all;
}

/// The same numbers in double: the reference in f64 adds hardly any error of its own.
Tensor widened(const Tensor& values) {
  return Tensor::from(ops::in_double(values), values.shape());
}

/// `call` on operands of `dtype` on the GPU, and in f64 on the host. The last operand is the result.
template <class Call>
void check_close_to_f64(const Operands& operands, std::int64_t k, Call&& call) {
  Operands wide;
  for (const Tensor& operand : operands) wide.push_back(widened(operand));
  const Tensor expected = after_reference(wide, call).back();
  for (const std::int64_t skip : {0, 1}) {
    CAPTURE(skip);
    const Tensor got = after_cuda(operands, call, skip).back();
    CHECK(largest_difference(expected, got) <= rounding_of_products(operands.back().dtype(), k));
  }
}

template <class Body>
void for_each_product(Body&& body) {
  for (const DType dtype : float_types)
    for (const auto transpose_a : {Transpose::no, Transpose::yes})
      for (const auto transpose_b : {Transpose::no, Transpose::yes})
        for (Product p : sizes()) {
          p.transpose_a = transpose_a;
          p.transpose_b = transpose_b;
          CAPTURE(name_of(dtype), p.m, p.n, p.k, transpose_a == Transpose::yes, transpose_b == Transpose::yes);
          body(dtype, p);
        }
}

auto matmul_of(const Product& p) {
  return
      [p](const Kernels& kernels, const Views& v) { kernels.matmul(v[0], p.transpose_a, v[1], p.transpose_b, v[2]); };
}

/// The sum of two products of the same factors, of the first transposed.
void sum_twice(const Kernels& kernels, const Views& v) {
  kernels.sum_of_products(std::vector<ops::Kernels::Factors>(2, {v[0], v[1]}), v[2]);
}

auto linear_with(Activation activation) {
  return [activation](const Kernels& kernels, const Views& v) { kernels.linear(v[0], v[1], v[2], activation, v[3]); };
}

}  // namespace

TEST_CASE("products of whole numbers on a GPU are those of the host, to the bit") {
  for_each_product([](DType dtype, const Product& p) {
    check_like_reference(
        {whole_numbers(dtype, p.a(), 1), whole_numbers(dtype, p.b(), 2), filled(dtype, {p.m, p.n}, not_a_number)}, 0,
        matmul_of(p));
  });
}

TEST_CASE("a language model's logits of whole numbers on a GPU are those of the host, to the bit", "[large]") {
  const Product p{3, 50257, 768, Transpose::no, Transpose::yes};
  check_like_reference({whole_numbers(DType::f32, p.a(), 1), whole_numbers(DType::f32, p.b(), 2),
                        filled(DType::f32, {p.m, p.n}, not_a_number)},
                       exactly, matmul_of(p));
}

TEST_CASE("sums of products of whole numbers on a GPU are those of the host, to the bit") {
  for (const DType dtype : float_types)
    for (const Product& p : sizes()) {
      CAPTURE(name_of(dtype), p.m, p.n, p.k);
      check_like_reference({whole_numbers(dtype, {p.k, p.m}, 1), whole_numbers(dtype, {p.k, p.n}, 2),
                            filled(dtype, {p.m, p.n}, not_a_number)},
                           0, sum_twice);
    }
}

TEST_CASE("products on a GPU keep the precision of their type") {
  for_each_product([](DType dtype, const Product& p) {
    check_close_to_f64({noise(dtype, p.a(), 1), noise(dtype, p.b(), 2), filled(dtype, {p.m, p.n}, not_a_number)}, p.k,
                       matmul_of(p));
  });
}

TEST_CASE("a layer of whole numbers on a GPU is that of the host, to the bit") {
  for (const DType dtype : float_types)
    for (const auto activation : {Activation::none, Activation::relu})
      for (const Product& p : sizes()) {
        CAPTURE(name_of(dtype), p.m, p.n, p.k, activation == Activation::relu);
        check_like_reference({whole_numbers(dtype, p.a(), 1), whole_numbers(dtype, p.b(), 2),
                              whole_numbers(dtype, {p.n}, 3), filled(dtype, {p.m, p.n}, not_a_number)},
                             0, linear_with(activation));
      }
}

TEST_CASE("a layer on a GPU keeps the precision of its type") {
  for (const DType dtype : float_types)
    for (const auto activation : {Activation::none, Activation::relu})
      for (const Product& p : sizes()) {
        CAPTURE(name_of(dtype), p.m, p.n, p.k, activation == Activation::relu);
        check_close_to_f64({noise(dtype, p.a(), 1), noise(dtype, p.b(), 2), noise(dtype, {p.n}, 3),
                            filled(dtype, {p.m, p.n}, not_a_number)},
                           p.k, linear_with(activation));
      }
}

TEST_CASE("a NaN passes through a product, a bias and an activation on a GPU") {
  for (const DType dtype : float_types)
    for (const auto activation : {Activation::none, Activation::relu})
      for (const Product& p : sizes()) {
        if (p.m == 0 || p.n == 0) continue;
        CAPTURE(name_of(dtype), p.m, p.n, p.k, activation == Activation::relu);
        const auto all_nan = [](const Tensor& result) {
          for (const double value : ops::in_double(result))
            if (!std::isnan(value)) return false;
          return true;
        };
        const Tensor y = Tensor::zeros(dtype, {p.m, p.n});
        const Tensor ones = filled(dtype, p.b(), 1);
        const Tensor x = filled(dtype, p.a(), -1);
        CHECK(all_nan(after_cuda({x, ones, filled(dtype, {p.n}, not_a_number), y}, linear_with(activation)).back()));
        if (p.k == 0) continue;
        const Tensor bias = filled(dtype, {p.n}, -1);
        CHECK(all_nan(after_cuda({filled(dtype, p.a(), not_a_number), ones, bias, y}, linear_with(activation)).back()));
        CHECK(all_nan(after_cuda({x, filled(dtype, p.b(), not_a_number), bias, y}, linear_with(activation)).back()));
      }
}

TEST_CASE("a product on a GPU has the same bits every time, wherever its operands lie", "[large]") {
  for (const DType dtype : float_types)
    for (const Product& p :
         {Product{256, 512, 784}, Product{784, 512, 256, Transpose::yes}, Product{32, 10, 4096},
          Product{256, 512, 10, Transpose::no, Transpose::yes}, Product{1, 33, 70}, Product{8, 8, 100000}}) {
      CAPTURE(name_of(dtype), p.m, p.n, p.k);
      const Operands operands{noise(dtype, p.a(), 1), noise(dtype, p.b(), 2), filled(dtype, {p.m, p.n}, not_a_number)};
      check_repeats(operands, matmul_of(p));
      if (p.transpose_a == Transpose::yes || p.transpose_b == Transpose::yes) continue;
      for (const auto activation : {Activation::none, Activation::relu})
        check_repeats({operands[0], operands[1], noise(dtype, {p.n}, 3), operands[2]}, linear_with(activation));
    }
}

TEST_CASE("kernels made a second time give the same bits as the first", "[large]") {
  const auto again = ops::make_kernels(ops::Kernels::Choice::automatic, {}, gpu().stream);
  const OnGpu a{noise(DType::f32, {256, 784}, 1)};
  const OnGpu b{noise(DType::f32, {784, 512}, 2)};
  const OnGpu c{filled(DType::f32, {256, 512}, 0)};
  const OnGpu d{filled(DType::f32, {256, 512}, 1)};
  gpu().kernels.matmul(a.view(), Transpose::no, b.view(), Transpose::no, c.view());
  again->matmul(a.view(), Transpose::no, b.view(), Transpose::no, d.view());
  CHECK(ops::same_bits(c.back().view(), d.back().view()));
}
