// What is found out about the bits of a backend's products, of kernels that have each property and of kernels that lack
// it.
#include <catch2/catch.hpp>

#include <lockstep/core/base/error.hpp>

#include "models/ops/kernel_properties.hpp"
#include "odd_kernels.hpp"
#include "ops_support.hpp"

using namespace lockstep;
using namespace lockstep::ops;

namespace {

constexpr DenseForm middling{.inputs = 24, .outputs = 10, .activation = Kernels::Activation::relu};

DenseTrial trial(const Kernels& kernels, RowBlocks blocks, const DenseForm& form = middling) {
  return {kernels, form, blocks, Stream::host()};
}

/// Down to a single element a result, where one trial in a few would find the same bits by chance.
const std::vector<DenseForm> forms{{24, 10, Kernels::Activation::relu, DType::f32},
                                   {24, 10, Kernels::Activation::relu, DType::f64},
                                   {5, 1, Kernels::Activation::none, DType::f32},
                                   {5, 1, Kernels::Activation::none, DType::f64},
                                   {1, 3, Kernels::Activation::none, DType::f32}};

}  // namespace

TEST_CASE("the reference has every property, at every size") {
  const ReferenceKernels kernels;
  for (const DenseForm& form : forms)
    for (const RowBlocks blocks : {RowBlocks{1, 1}, RowBlocks{1, 2}, RowBlocks{3, 1}, RowBlocks{7, 4}}) {
      CAPTURE(form.inputs, form.outputs, blocks.rows, blocks.blocks);
      CHECK(trial(kernels, blocks, form).forward_rows_keep_their_bits());
      CHECK(trial(kernels, blocks, form).input_gradient_rows_keep_their_bits());
      CHECK(trial(kernels, blocks, form).weight_gradients_add_up());
    }
}

TEST_CASE("rows that have other bits among others are found, and what else holds is not lost") {
  const RowCountingKernels kernels{4};
  for (const DenseForm& form : forms) {
    CAPTURE(form.inputs, form.outputs, static_cast<int>(form.dtype));
    DenseTrial many = trial(kernels, {4, 2}, form);
    CHECK_FALSE(many.forward_rows_keep_their_bits());
    CHECK_FALSE(many.input_gradient_rows_keep_their_bits());
    CHECK(many.weight_gradients_add_up());
    DenseTrial few = trial(kernels, {2, 2}, form);
    CHECK(few.forward_rows_keep_their_bits());
    CHECK(few.input_gradient_rows_keep_their_bits());
    CHECK(trial(kernels, {8, 1}, form).forward_rows_keep_their_bits());  // alone among its own
  }
}

TEST_CASE("sums of products that are not the tree of them are found, where there is one") {
  const TermwiseKernels kernels;
  for (const DenseForm& form : forms) {
    CAPTURE(form.inputs, form.outputs, static_cast<int>(form.dtype));
    CHECK_FALSE(trial(kernels, {3, 2}, form).weight_gradients_add_up());
    CHECK_FALSE(trial(kernels, {1, 4}, form).weight_gradients_add_up());
    CHECK_FALSE(trial(SecretiveKernels{}, {3, 2}, form).weight_gradients_add_up());
    CHECK(trial(kernels, {1, 2}, form).weight_gradients_add_up());
    CHECK(trial(kernels, {3, 1}, form).weight_gradients_add_up());
    CHECK(trial(kernels, {3, 2}, form).forward_rows_keep_their_bits());
    CHECK(trial(kernels, {3, 2}, form).input_gradient_rows_keep_their_bits());
  }
}

TEST_CASE("kernels that have other bits the second time, or elsewhere, are refused by name") {
  const ForgetfulKernels forgetful;
  const PlaceMindedKernels place_minded;
  for (const Kernels* kernels : std::vector<const Kernels*>{&forgetful, &place_minded})
    for (const RowBlocks blocks : {RowBlocks{5, 1}, RowBlocks{5, 4}}) {
      CHECK_THROWS_AS(trial(*kernels, blocks).forward_rows_keep_their_bits(), DeviceError);
      CHECK_THROWS_AS(trial(*kernels, blocks).input_gradient_rows_keep_their_bits(), DeviceError);
      CHECK_THROWS_AS(trial(*kernels, blocks).weight_gradients_add_up(), DeviceError);
    }
  CHECK_THROWS_WITH(
      trial(forgetful, {5, 4}).input_gradient_rows_keep_their_bits(),
      "reference (reference, portable): matmul of f32[20, 10] and f32[24, 10] has other bits when it is computed "
      "again; expected the same bits from the same numbers, wherever they lie");
}

TEST_CASE("the products of a layer of bf16 are tried out in its types") {
  for (const auto& kernels : all_kernels()) {
    DenseTrial narrow = trial(*kernels, {7, 1}, {24, 10, Kernels::Activation::relu, DType::bf16});
    CHECK(narrow.forward_rows_keep_their_bits());
    CHECK(narrow.input_gradient_rows_keep_their_bits());
    CHECK(narrow.weight_gradients_add_up());
  }
  const ForgetfulKernels forgetful;
  CHECK_THROWS_WITH(
      trial(forgetful, {5, 1}, {24, 10, Kernels::Activation::none, DType::bf16}).weight_gradients_add_up(),
      Catch::Contains("of bf16[5, 24] and bf16[5, 10] has other bits"));
}

TEST_CASE("the library's products of the first run's shapes can be tried out, and repeat their bits") {
  const auto kernels = make_kernels(Kernels::Choice::automatic);
  for (const DenseForm& form : {DenseForm{784, 512, Kernels::Activation::relu}, DenseForm{512, 10}})
    for (const RowBlocks blocks : {RowBlocks{32, 4}, RowBlocks{3, 2}}) {
      DenseTrial library = trial(*kernels, blocks, form);
      CHECK_NOTHROW(library.forward_rows_keep_their_bits());
      CHECK_NOTHROW(library.input_gradient_rows_keep_their_bits());
      CHECK_NOTHROW(library.weight_gradients_add_up());
    }
}
