// What kernels refuse, and in which words.
#include <cstring>
#include <string>

#include <catch2/catch.hpp>

#include <lockstep/core/base/error.hpp>
#include <lockstep/models/ops/kernels.hpp>

#include "core/base/element_count.hpp"
#include "models/ops/with_type.hpp"
#include "ops_support.hpp"

using namespace lockstep;
using namespace lockstep::ops;

namespace {

constexpr auto no = Kernels::Transpose::no;
constexpr auto yes = Kernels::Transpose::yes;

Tensor zeros(Shape shape, DType dtype = DType::f32) {
  return Tensor::zeros(dtype, std::move(shape));
}

}  // namespace

TEST_CASE("kernels compute with the C++ types of f32 and f64, and take nothing else for one of them") {
  const auto size = [](DType dtype) { return with_type(dtype, []<class T>() { return sizeof(T); }); };
  CHECK(size(DType::f32) == sizeof(float));
  CHECK(size(DType::f64) == sizeof(double));
  for (const DType other : {DType::f16, DType::bf16, DType::i32, DType::i64, DType::u8})
    CHECK_THROWS_AS(size(other), InvalidArgument);
  CHECK_THROWS_WITH(size(DType::i64), "no kernel computes with i64; expected f32 or f64");
}

TEST_CASE("products that do not fit are refused with all of their operands") {
  const Tensor a = zeros({2, 3});
  const Tensor b = zeros({3, 2});
  const Tensor c = zeros({2, 2});
  const Tensor f64s = zeros({3, 2}, DType::f64);
  const Tensor i64s = zeros({2, 3}, DType::i64);
  const TensorView on_gpu{nullptr, {2, 3}, DType::f32, DeviceKind::cuda};
  for (const auto& kernels : all_kernels()) {
    const auto matmul = [&](const TensorView& x, Kernels::Transpose flip_x, const TensorView& y,
                            Kernels::Transpose flip_y,
                            const TensorView& z) { return refusal([&] { kernels->matmul(x, flip_x, y, flip_y, z); }); };
    CHECK(matmul(a.view(), no, a.view(), no, c.view()) == "matmul: f32[2, 3] times f32[2, 3] does not give f32[2, 2]");
    CHECK(matmul(a.view(), yes, b.view(), yes, c.view()) ==
          "matmul: f32[2, 3] transposed times f32[3, 2] transposed does not give f32[2, 2]");
    CHECK(matmul(a.view(), no, b.view(), no, a.view()) == "matmul: f32[2, 3] times f32[3, 2] does not give f32[2, 3]");
    CHECK(matmul(a.view(), no, b.view(), no, zeros({4}).view()) == "matmul: expected two dimensions, not f32[4]");
    CHECK(matmul(a.view(), no, f64s.view(), no, c.view()) == "matmul: f32[2, 3] and f64[3, 2] are not of one type");
    CHECK(matmul(f64s.view(), no, f64s.view(), yes, zeros({3, 3}).view()) ==
          "matmul: f64[3, 2] and f32[3, 3] are not of one type");
    CHECK(matmul(i64s.view(), no, b.view(), no, c.view()) == "matmul: expected f32, f64 or bf16, not i64[2, 3]");
    CHECK(matmul(on_gpu, no, b.view(), no, c.view()) ==
          "matmul: f32[2, 3] is in the memory of a cuda device, expected the host's");
  }
}

TEST_CASE("sums of products that do not fit are refused, and sums of none") {
  const Tensor a = zeros({3, 2});
  const Tensor b = zeros({3, 4});
  const Tensor c = zeros({2, 4});
  for (const auto& kernels : all_kernels()) {
    const auto sum = [&](std::vector<Kernels::Factors> factors, const TensorView& to) {
      return refusal([&] { kernels->sum_of_products(factors, to); });
    };
    CHECK(sum({}, c.view()) == "sum_of_products: no factors; expected one or more");
    for (const bool only_shown : {true, false})
      CHECK(sum({{a.view(), b.view(), {}, true}, {a.view(), b.view(), {}, only_shown}}, c.view()) ==
            "sum_of_products: a product that is only shown before one to add; expected it behind them");
    CHECK(sum({{a.view(), b.view()}, {a.view(), c.view()}}, c.view()) ==
          "sum_of_products: f32[3, 2] transposed times f32[2, 4] does not give f32[2, 4]");
    CHECK(sum({{a.view(), b.view()}, {a.view(), b.view()}}, b.view().slice(2, 8).reshaped({2, 4})) ==
          "sum_of_products: f32[3, 4] and f32[2, 4] overlap in memory");
  }
}

TEST_CASE("element-wise operands of other shapes or types are refused with both operands") {
  const Tensor a = zeros({2, 3});
  const Tensor b = zeros({3, 2});
  const Tensor f64s = zeros({2, 3}, DType::f64);
  const Tensor i64s = zeros({2, 3}, DType::i64);
  for (const auto& kernels : all_kernels()) {
    const Kernels& k = *kernels;
    CHECK(refusal([&] { k.add_bias(a.view(), zeros({2}).view()); }) ==
          "add_bias: f32[2] does not fit the rows of f32[2, 3], expected [3]");
    CHECK(refusal([&] { k.add_bias(zeros({6}).view(), zeros({6}).view()); }) ==
          "add_bias: expected two dimensions, not f32[6]");
    CHECK(refusal([&] {
            k.sum_rows(a.view(), zeros({1, 3}).view());
          }) == "sum_rows: f32[1, 3] does not fit the rows of f32[2, 3], expected [3]");
    CHECK(refusal([&] { k.sum_rows(a.view(), zeros({3}, DType::f64).view()); }) ==
          "sum_rows: f32[2, 3] and f64[3] are not of one type");

    CHECK(refusal([&] { k.relu(a.view(), b.view()); }) == "relu: f32[2, 3] and f32[3, 2] are not of one shape");
    CHECK(refusal([&] { k.relu(i64s.view(), i64s.view()); }) == "relu: expected f32, f64 or bf16, not i64[2, 3]");
    CHECK(refusal([&] { k.relu_gradient(a.view(), b.view(), a.view()); }) ==
          "relu_gradient: f32[3, 2] and f32[2, 3] are not of one shape");
    CHECK(refusal([&] { k.relu_gradient(b.view(), a.view(), a.view()); }) ==
          "relu_gradient: f32[3, 2] and f32[2, 3] are not of one shape");

    CHECK(refusal([&] { k.add(a.view(), f64s.view()); }) == "add: f32[2, 3] and f64[2, 3] are not of one type");
  }
}

TEST_CASE("logits and labels that do not fit are refused with both, with and without a gradient") {
  const Tensor logits = zeros({2, 3});
  const Tensor labels = i32({0, 1});
  const std::string softmax = "softmax_cross_entropy: ";
  for (const auto& kernels : all_kernels())
    for (const bool with_gradient : {false, true}) {
      const auto entropy = [&](const TensorView& x, const TensorView& label, std::int64_t samples) {
        const Tensor d = Tensor::zeros(x.dtype(), x.shape());
        return refusal([&] {
          if (with_gradient)
            kernels->softmax_cross_entropy(x, label, samples, d.view());
          else
            kernels->softmax_cross_entropy(x, label, samples);
        });
      };
      CHECK(entropy(zeros({3, 2}).view(), labels.view(), 1) ==
            softmax + "i32[2] cannot be the labels of f32[3, 2], expected i32[3]");
      CHECK(entropy(logits.view(), zeros({2}).view(), 1) ==
            softmax + "f32[2] cannot be the labels of f32[2, 3], expected i32[2]");
      CHECK(entropy(zeros({3}).view(), labels.view(), 1) == softmax + "expected two dimensions, not f32[3]");
      CHECK(entropy(zeros({2, 3}, DType::u8).view(), labels.view(), 1) ==
            softmax + "expected f32, f64 or bf16, not u8[2, 3]");
      CHECK(entropy(logits.view(), labels.view(), 3) ==
            softmax + "3 samples are not in the rows of f32[2, 3] and i32[2]");
      CHECK(entropy(logits.view(), labels.view(), -1) ==
            softmax + "-1 samples are not in the rows of f32[2, 3] and i32[2]");
      CHECK(entropy(logits.view(), i32({0, 3}).view(), 2) ==
            softmax + "label 3 of row 1 is outside of [0, 3), the classes of f32[2, 3]");
      CHECK(entropy(logits.view(), i32({-1, 0}).view(), 2) ==
            softmax + "label -1 of row 0 is outside of [0, 3), the classes of f32[2, 3]");
    }
  const Tensor d = zeros({2, 3}, DType::f64);
  CHECK(refusal([&] {
          make_kernels(Kernels::Choice::automatic)->softmax_cross_entropy(logits.view(), labels.view(), 2, d.view());
        }) == softmax + "f32[2, 3] and f64[2, 3] are not of one type");
}

TEST_CASE("operands that overlap where they may not are refused, and nothing is written") {
  const auto kernels = make_kernels(Kernels::Choice::automatic);
  const Kernels& k = *kernels;
  const Tensor memory = noise(DType::f32, {20}, 13);
  // The first two elements double as labels below: as integers they are classes 0 and 1.
  const TensorView labels{memory.view().data(), {2}, DType::i32};
  labels.elements<std::int32_t>()[0] = 0;
  labels.elements<std::int32_t>()[1] = 1;
  const Tensor before = Tensor::copy_of(memory.view());
  const Tensor matrix = zeros({2, 2});
  const Tensor flat = zeros({4});
  const auto at = [&](std::int64_t first, Shape shape) {
    const std::int64_t count = element_count(shape);
    return memory.view().slice(first, count).reshaped(std::move(shape));
  };

  CHECK(refusal([&] {
          k.matmul(at(0, {2, 2}), no, matrix.view(), no, at(3, {2, 2}));
        }) == "matmul: f32[2, 2] and f32[2, 2] overlap in memory");
  CHECK(refusal([&] {
          k.matmul(matrix.view(), no, at(4, {2, 2}), no, at(4, {2, 2}));
        }) == "matmul: f32[2, 2] and f32[2, 2] overlap in memory");
  CHECK(refusal([&] { k.add_bias(at(0, {2, 2}), at(2, {2})); }) == "add_bias: f32[2, 2] and f32[2] overlap in memory");
  CHECK(refusal([&] { k.sum_rows(at(0, {2, 2}), at(3, {2})); }) == "sum_rows: f32[2, 2] and f32[2] overlap in memory");
  CHECK(refusal([&] { k.relu(at(0, {4}), at(1, {4})); }) == "relu: f32[4] and f32[4] overlap in memory");
  CHECK(refusal([&] { k.relu_gradient(flat.view(), at(0, {4}), at(2, {4})); }) ==
        "relu_gradient: f32[4] and f32[4] overlap in memory");
  CHECK(refusal([&] { k.relu_gradient(at(0, {4}), flat.view(), at(2, {4})); }) ==
        "relu_gradient: f32[4] and f32[4] overlap in memory");
  CHECK(refusal([&] { k.add(at(0, {4}), at(0, {4})); }) == "add: f32[4] and f32[4] overlap in memory");
  CHECK(refusal([&] {
          k.softmax_cross_entropy(matrix.view(), labels, 2, at(1, {2, 2}));
        }) == "softmax_cross_entropy: i32[2] and f32[2, 2] overlap in memory");
  CHECK(refusal([&] {
          k.softmax_cross_entropy(at(4, {2, 2}), labels, 2, at(6, {2, 2}));
        }) == "softmax_cross_entropy: f32[2, 2] and f32[2, 2] overlap in memory");
  CHECK(same_bits(memory.view(), before.view()));

  // Neighbours do not overlap.
  CHECK_NOTHROW(k.add(at(0, {4}), at(4, {4})));
  CHECK_NOTHROW(k.matmul(at(0, {2, 2}), no, at(4, {2, 2}), no, at(8, {2, 2})));
}
