// A layer's product, bias and activation in one call.
#include <cmath>
#include <string>

#include <catch2/catch.hpp>

#include <lockstep/core/base/error.hpp>
#include <lockstep/models/ops/kernels.hpp>

#include "ops_support.hpp"

using namespace lockstep;
using namespace lockstep::ops;

namespace {

Tensor linear(const Kernels& kernels, const Tensor& x, const Tensor& weight, const Tensor& bias,
              Kernels::Activation activation, const Tensor& y) {
  kernels.linear(x.view(), weight.view(), bias.view(), activation, y.view());
  return y;
}

}  // namespace

TEST_CASE("linear has the bits of a product, a bias and an activation, one after the other") {
  for (const auto& kernels : all_kernels())
    for (const DType dtype : {DType::f32, DType::f64})
      for (const auto activation : {Kernels::Activation::none, Kernels::Activation::relu})
        for (const Shape& sizes : {Shape{1, 1, 1}, Shape{5, 3, 7}, Shape{33, 100, 10}, Shape{64, 784, 48}}) {
          CAPTURE(kernels->name(), name_of(dtype), activation == Kernels::Activation::relu, describe(sizes));
          const Tensor x = noise(dtype, {sizes[0], sizes[1]}, 1);
          const Tensor weight = noise(dtype, {sizes[1], sizes[2]}, 2);
          const Tensor bias = noise(dtype, {sizes[2]}, 3);

          const Tensor expected = filled(dtype, {sizes[0], sizes[2]}, not_a_number);
          kernels->matmul(x.view(), Kernels::Transpose::no, weight.view(), Kernels::Transpose::no, expected.view());
          kernels->add_bias(expected.view(), bias.view());
          if (activation == Kernels::Activation::relu) kernels->relu(expected.view(), expected.view());

          const Tensor y = filled(dtype, {sizes[0], sizes[2]}, not_a_number);
          CHECK(same_bits(linear(*kernels, x, weight, bias, activation, y).view(), expected.view()));
        }
}

TEST_CASE("linear without inputs is the bias, and without rows or outputs nothing") {
  for (const auto& kernels : all_kernels()) {
    const Tensor bias = f32({-1, 2, 0.5f}, {3});
    const auto of_nothing = [&](Kernels::Activation activation) {
      return linear(*kernels, Tensor::zeros(DType::f32, {2, 0}), Tensor::zeros(DType::f32, {0, 3}), bias, activation,
                    filled(DType::f32, {2, 3}, not_a_number))
          .to_vector<float>();
    };
    CHECK(of_nothing(Kernels::Activation::none) == std::vector<float>{-1, 2, 0.5f, -1, 2, 0.5f});
    CHECK(of_nothing(Kernels::Activation::relu) == std::vector<float>{0, 2, 0.5f, 0, 2, 0.5f});
    CHECK_NOTHROW(linear(*kernels, Tensor::zeros(DType::f32, {0, 4}), noise(DType::f32, {4, 3}, 1), bias,
                         Kernels::Activation::relu, Tensor::zeros(DType::f32, {0, 3})));
    CHECK_NOTHROW(linear(*kernels, noise(DType::f32, {2, 4}, 1), Tensor::zeros(DType::f32, {4, 0}),
                         Tensor::zeros(DType::f32, {0}), Kernels::Activation::relu, Tensor::zeros(DType::f32, {2, 0})));
  }
}

TEST_CASE("linear lets a NaN through its activation") {
  for (const auto& kernels : all_kernels()) {
    const Tensor y = linear(*kernels, filled(DType::f32, {2, 5}, not_a_number), filled(DType::f32, {5, 9}, 1),
                            filled(DType::f32, {9}, -1), Kernels::Activation::relu, Tensor::zeros(DType::f32, {2, 9}));
    for (const float value : y.to_vector<float>()) CHECK(std::isnan(value));
  }
}

TEST_CASE("linear refuses operands that do not fit, in its own name, and writes nothing") {
  const Tensor x = noise(DType::f32, {2, 4}, 1);
  const Tensor weight = noise(DType::f32, {4, 3}, 2);
  const Tensor bias = noise(DType::f32, {3}, 3);
  const Tensor y = noise(DType::f32, {2, 3}, 4);
  const Tensor before = Tensor::copy_of(y.view());
  for (const auto& kernels : all_kernels()) {
    const auto refused = [&](const TensorView& a, const TensorView& b, const TensorView& c, const TensorView& d,
                             const std::string& message) {
      CHECK_THROWS_AS(kernels->linear(a, b, c, Kernels::Activation::relu, d), InvalidArgument);
      CHECK_THROWS_WITH(kernels->linear(a, b, c, Kernels::Activation::relu, d), message);
    };
    refused(weight.view(), weight.view(), bias.view(), y.view(),
            "linear: f32[4, 3] times f32[4, 3] does not give f32[2, 3]");
    refused(x.view(), weight.view(), x.view().slice(0, 2), y.view(),
            "linear: f32[2] does not fit the rows of f32[2, 3], expected [3]");
    refused(x.view(), weight.view(), bias.view().reshaped({1, 3}), y.view(),
            "linear: f32[1, 3] does not fit the rows of f32[2, 3], expected [3]");
    refused(x.view(), weight.view(), filled(DType::f64, {3}, 0).view(), y.view(),
            "linear: f32[2, 3] and f64[3] are not of one type");
    refused(x.view(), filled(DType::f64, {4, 3}, 0).view(), bias.view(), y.view(),
            "linear: f32[2, 4] and f64[4, 3] are not of one type");
    refused(x.view(), weight.view(), y.view().slice(2, 3), y.view(), "linear: f32[2, 3] and f32[3] overlap in memory");
    refused(x.view(), weight.view(), bias.view(), x.view().slice(0, 6).reshaped({2, 3}),
            "linear: f32[2, 4] and f32[2, 3] overlap in memory");
    refused(x.view(), weight.view(), bias.view(), weight.view().slice(6, 6).reshaped({2, 3}),
            "linear: f32[4, 3] and f32[2, 3] overlap in memory");
    refused(x.view(), weight.view(), TensorView{nullptr, {3}, DType::f32, DeviceKind::cuda}, y.view(),
            "linear: f32[3] is in the memory of a cuda device, expected the host's");
  }
  CHECK(same_bits(y.view(), before.view()));
}
