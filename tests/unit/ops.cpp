// Kernels that work element by element or row by row, against plain arithmetic.
#include <cmath>

#include <catch2/catch.hpp>

#include <lockstep/core/base/error.hpp>
#include <lockstep/models/ops/kernels.hpp>

#include "models/ops/kernel_choice.hpp"
#include "ops_support.hpp"

using namespace lockstep;
using namespace lockstep::ops;

TEST_CASE("kernels are chosen by name, and the automatic choice is the library where it is built in") {
  CHECK(parse_kernel_choice("auto") == Kernels::Choice::automatic);
  CHECK(parse_kernel_choice("reference") == Kernels::Choice::reference);
  CHECK(parse_kernel_choice("onednn") == Kernels::Choice::onednn);
  CHECK_THROWS_WITH(parse_kernel_choice("mkl"), Catch::Contains("'mkl'") && Catch::Contains("auto, reference"));
  CHECK_THROWS_AS(parse_kernel_choice(""), ConfigError);

  CHECK(make_kernels(Kernels::Choice::reference)->name() == "reference");
  CHECK(make_kernels(Kernels::Choice::reference)->fingerprint() == "reference, portable");
  const auto automatic = make_kernels(Kernels::Choice::automatic);
  if (automatic->name() == "oneDNN") {
    CHECK(make_kernels(Kernels::Choice::onednn)->name() == "oneDNN");
    CHECK_THAT(automatic->fingerprint(), Catch::StartsWith("oneDNN ") && Catch::EndsWith(", 1 thread"));
    CHECK(make_kernels(Kernels::Choice::onednn, Kernels::Threads{2})->fingerprint() != automatic->fingerprint());
  } else {
    CHECK(automatic->name() == "reference");
    CHECK_THROWS_AS(make_kernels(Kernels::Choice::onednn), ConfigError);
  }
  CHECK_THROWS_AS(make_kernels(Kernels::Choice::reference, Kernels::Threads{0}), InvalidArgument);
}

TEST_CASE("a bias is added to every row, and its gradient is the sum of the rows") {
  for (const auto& kernels : all_kernels()) {
    const Tensor rows = f32({1, 2, 3, 4, 5, 6}, {2, 3});
    kernels->add_bias(rows.view(), f32({10, 20, 30}, {3}).view());
    CHECK(rows.to_vector<float>() == std::vector<float>{11, 22, 33, 14, 25, 36});

    const Tensor sums = filled(DType::f32, {3}, not_a_number);
    kernels->sum_rows(rows.view(), sums.view());
    CHECK(sums.to_vector<float>() == std::vector<float>{25, 47, 69});
    kernels->sum_rows(Tensor::zeros(DType::f32, {0, 3}).view(), sums.view());
    CHECK(sums.to_vector<float>() == std::vector<float>{0, 0, 0});

    const Tensor large = f64({1e16, 1, -1e16, 1}, {4, 1});  // first row first: the 1 behind 1e16 is lost
    const Tensor sum = filled(DType::f64, {1}, not_a_number);
    kernels->sum_rows(large.view(), sum.view());
    CHECK(sum.to_vector<double>() == std::vector<double>{1});
    kernels->add_bias(large.view(), f64({0.5}, {1}).view());
    CHECK(large.to_vector<double>()[1] == 1.5);
  }
}

TEST_CASE("relu keeps what is positive, and passes the gradient there and nowhere else, in place too") {
  for (const auto& kernels : all_kernels()) {
    // More elements than a vector register holds, so that the vectorised loop and its rest are both run.
    const Tensor x = noise(DType::f32, {37}, 7);
    const Tensor dy = noise(DType::f32, {37}, 8);
    const Tensor y = filled(DType::f32, {37}, not_a_number);
    kernels->relu(x.view(), y.view());
    const Tensor dx = filled(DType::f32, {37}, not_a_number);
    kernels->relu_gradient(y.view(), dy.view(), dx.view());
    for (std::size_t i = 0; i < 37; ++i) {
      const bool positive = x.to_vector<float>()[i] > 0;
      CHECK(y.to_vector<float>()[i] == (positive ? x.to_vector<float>()[i] : 0));
      CHECK(dx.to_vector<float>()[i] == (positive ? dy.to_vector<float>()[i] : 0));
    }

    const Tensor in_y = Tensor::copy_of(y.view());
    kernels->relu_gradient(in_y.view(), dy.view(), in_y.view());
    CHECK(same_bits(in_y.view(), dx.view()));
    const Tensor in_dy = Tensor::copy_of(dy.view());
    kernels->relu_gradient(y.view(), in_dy.view(), in_dy.view());
    CHECK(same_bits(in_dy.view(), dx.view()));
    kernels->relu(x.view(), x.view());
    CHECK(same_bits(x.view(), y.view()));

    const Tensor doubles = f64({-1, 0, 2}, {3});
    kernels->relu(doubles.view(), doubles.view());
    CHECK(doubles.to_vector<double>() == std::vector<double>{0, 0, 2});
  }
}

TEST_CASE("relu and its gradient let a NaN through") {
  const auto kernels = make_kernels(Kernels::Choice::automatic);
  const Tensor x = filled(DType::f32, {9}, not_a_number);
  const Tensor ones = filled(DType::f32, {9}, 1);
  kernels->relu_gradient(x.view(), ones.view(), ones.view());
  kernels->relu(x.view(), x.view());
  for (std::size_t i = 0; i < 9; ++i) {
    CHECK(std::isnan(x.to_vector<float>()[i]));
    CHECK(ones.to_vector<float>()[i] == 1);
  }
}

TEST_CASE("softmax cross-entropy gives the numbers of a calculation by hand") {
  for (const auto& kernels : all_kernels()) {
    // Rows: e^0 : e^ln2 : e^ln5 = 1 : 2 : 5, of a sum of 8; then three equal logits.
    const Tensor logits = f64({0, std::log(2), std::log(5), 7, 7, 7}, {2, 3});
    const Tensor before = Tensor::copy_of(logits.view());
    const Tensor labels = i32({1, 0});
    const Tensor d = filled(DType::f64, {2, 3}, not_a_number);
    const Kernels::BatchLoss result = kernels->softmax_cross_entropy(logits.view(), labels.view(), 2, d.view());
    CHECK(result.loss_sum == Approx(std::log(4) + std::log(3)).epsilon(1e-14));
    CHECK(result.correct == 1);  // row 0 prefers class 2; in row 1 the lowest of equal classes wins
    const std::vector<double> expected{1. / 8, 2. / 8 - 1, 5. / 8, 1. / 3 - 1, 1. / 3, 1. / 3};
    for (std::size_t i = 0; i < 6; ++i) CHECK(d.to_vector<double>()[i] == Approx(expected[i]).epsilon(1e-14));
    CHECK(same_bits(logits.view(), before.view()));

    const Kernels::BatchLoss evaluated = kernels->softmax_cross_entropy(logits.view(), labels.view(), 2);
    CHECK(evaluated.loss_sum == result.loss_sum);
    CHECK(evaluated.correct == result.correct);
    CHECK(same_bits(logits.view(), before.view()));

    kernels->softmax_cross_entropy(logits.view(), labels.view(), 2, logits.view());
    CHECK(same_bits(logits.view(), d.view()));

    const Tensor tie = f32({3, 9, 9}, {1, 3});
    CHECK(kernels->softmax_cross_entropy(tie.view(), i32({2}).view(), 1).correct == 0);
    CHECK(kernels->softmax_cross_entropy(tie.view(), i32({1}).view(), 1).correct == 1);
    CHECK(kernels->softmax_cross_entropy(tie.view(), i32({1}).view(), 1).loss_sum ==
          Approx(std::log(2 + std::exp(-6))).epsilon(1e-6));
  }
}

TEST_CASE("the gradient of the loss agrees with finite differences") {
  const auto kernels = make_kernels(Kernels::Choice::automatic);
  const Tensor logits = noise(DType::f64, {4, 5}, 9);
  const Tensor labels = i32({0, 4, 2, 2});
  const Tensor d = filled(DType::f64, {4, 5}, not_a_number);
  kernels->softmax_cross_entropy(logits.view(), labels.view(), 3, d.view());
  const double h = 1e-5;  // central differences are off by about h^2
  for (std::size_t i = 0; i < 20; ++i) {
    const auto loss_at = [&](double x) {
      const Tensor moved = Tensor::copy_of(logits.view());
      moved.view().elements<double>()[i] += x;
      return kernels->softmax_cross_entropy(moved.view(), labels.view(), 3).loss_sum;
    };
    CHECK(d.to_vector<double>()[i] == Approx((loss_at(h) - loss_at(-h)) / (2 * h)).margin(1e-9));
  }
}

TEST_CASE("only the samples count: rows of padding have no loss and a gradient of zero") {
  const auto kernels = make_kernels(Kernels::Choice::automatic);
  const Tensor logits = f32({1, 2, static_cast<float>(not_a_number), 4}, {2, 2});
  const Tensor labels = i32({1, 99});  // padding is not even checked
  const Tensor d = filled(DType::f32, {2, 2}, not_a_number);
  const Kernels::BatchLoss one = kernels->softmax_cross_entropy(logits.view(), labels.view(), 1, d.view());
  CHECK(one.loss_sum == Approx(std::log1p(std::exp(-1))).epsilon(1e-6));
  CHECK(one.correct == 1);
  CHECK(d.to_vector<float>()[0] == Approx(1 / (1 + std::exp(1))).epsilon(1e-6));
  CHECK(d.to_vector<float>()[2] == 0);
  CHECK(d.to_vector<float>()[3] == 0);

  const Kernels::BatchLoss none = kernels->softmax_cross_entropy(logits.view(), labels.view(), 0, d.view());
  CHECK(none.loss_sum == 0);
  CHECK(none.correct == 0);
  CHECK(d.to_vector<float>() == std::vector<float>(4));
  CHECK(kernels->softmax_cross_entropy(Tensor::zeros(DType::f32, {0, 2}).view(), i32({}).view(), 0).loss_sum == 0);
}

TEST_CASE("large logits do not overflow, and what is not finite shows in the loss") {
  const auto kernels = make_kernels(Kernels::Choice::automatic);
  const auto loss = [&](std::initializer_list<float> row, std::int32_t label) {
    return kernels->softmax_cross_entropy(Tensor::from(row, {1, 3}).view(), i32({label}).view(), 1);
  };
  constexpr float inf = std::numeric_limits<float>::infinity();
  constexpr float bad = std::numeric_limits<float>::quiet_NaN();
  CHECK(loss({1000, 1000, 1000}, 0).loss_sum == Approx(std::log(3)).epsilon(1e-6));
  CHECK(loss({-1000, 1000, 0}, 0).loss_sum == 2000);
  CHECK(loss({-inf, 0, 0}, 1).loss_sum == Approx(std::log(2)).epsilon(1e-6));
  CHECK(loss({-inf, 0, 0}, 0).loss_sum == infinity);
  CHECK(std::isnan(loss({0, inf, 0}, 1).loss_sum));
  for (const std::int32_t label : {0, 1, 2}) {
    CHECK(std::isnan(loss({0, 1, bad}, label).loss_sum));
    CHECK(std::isnan(loss({bad, 1, 0}, label).loss_sum));
    CHECK(loss({bad, 1, 0}, label).correct == 0);
  }
}

TEST_CASE("a sum is added element by element") {
  for (const auto& kernels : all_kernels()) {
    const Tensor sum = f64({1, 2}, {2});
    kernels->add(sum.view(), f64({0.5, -2}, {2}).view());
    CHECK(sum.to_vector<double>() == std::vector<double>{1.5, 0});
  }
}
