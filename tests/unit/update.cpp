// The steps of optimizers, and the sum of squares that clipping needs.
#include <bit>
#include <cmath>
#include <string>

#include <catch2/catch.hpp>

#include "ops_support.hpp"
#include "sync/update/update_kernels.hpp"

namespace lockstep::test::update_cases {

using namespace lockstep::detail;
using namespace lockstep::ops;

namespace {

/// With the powers of the C library, and with portable ones.
std::vector<std::unique_ptr<UpdateKernels>> both_kernels() {
  std::vector<std::unique_ptr<UpdateKernels>> both;
  for (const Functions functions : {Functions::of_library, Functions::portable})
    both.push_back(make_update_kernels(functions, Stream::host()));
  return both;
}

double epsilon_of(DType dtype) {
  return dtype == DType::f32 ? std::numeric_limits<float>::epsilon() : std::numeric_limits<double>::epsilon();
}

/// What AdamW makes of `value` and the gradients of some steps, with the moments as the sums that their recursions
/// stand for.
double adamw_in_double(double value, const std::vector<double>& gradients, double learning_rate, double weight_decay,
                       const AdamWMoments& moments) {
  for (std::size_t t = 1; t <= gradients.size(); ++t) {
    double mean = 0, square = 0, weights1 = 0, weights2 = 0;
    for (std::size_t i = 0; i < t; ++i) {
      const auto age = static_cast<double>(t - 1 - i);
      mean += std::pow(moments.beta1, age) * gradients[i];
      square += std::pow(moments.beta2, age) * gradients[i] * gradients[i];
      weights1 += std::pow(moments.beta1, age);
      weights2 += std::pow(moments.beta2, age);
    }
    value = value * (1 - learning_rate * weight_decay) -
            learning_rate * (mean / weights1) / (std::sqrt(square / weights2) + moments.epsilon);
  }
  return value;
}

/// As its contract words it.
double tree_of(const std::vector<double>& sums, std::size_t first, std::size_t last) {
  if (last - first == 1) return sums[first];
  const std::size_t middle = first + std::bit_floor(last - first - 1);
  return tree_of(sums, first, middle) + tree_of(sums, middle, last);
}

double squares_in_order(const std::vector<std::vector<double>>& parts) {
  std::vector<double> blocks;
  for (const auto& part : parts)
    for (std::size_t begin = 0; begin < part.size(); begin += 4096) {
      std::vector<double> sums(256);
      for (std::size_t i = begin; i < std::min(begin + 4096, part.size()); ++i) {
        const volatile double square = part[i] * part[i];  // volatile: not fused with the sum
        sums[(i - begin) % 256] += square;
      }
      while (sums.size() > 1) {
        const std::size_t half = sums.size() / 2;
        for (std::size_t i = 0; i < half; ++i) sums[i] += sums[half + i];
        sums.resize(half);
      }
      blocks.push_back(sums[0]);
    }
  return blocks.empty() ? 0 : tree_of(blocks, 0, blocks.size());
}

bool same_number(double a, double b) {
  return std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b);
}

}  // namespace

TEST_CASE("updates give the numbers of a calculation by hand") {
  for (const auto& kernels : both_kernels()) {
    const Tensor w = f32({1, -2}, {2});
    kernels->sgd(w.view(), f32({8, 4}, {2}).view(), {.learning_rate = 0.5, .divisor = 4});
    CHECK(w.to_vector<float>() == std::vector<float>{0, -2.5});

    const Tensor gradient = f32({8, 4}, {2});
    const Tensor velocity = f32({0, 2}, {2});
    const UpdateStep step{.learning_rate = 0.5, .divisor = 4};
    kernels->momentum(w.view(), gradient.view(), velocity.view(), step, 0.25);
    CHECK(velocity.to_vector<float>() == std::vector<float>{2, 1.5});
    CHECK(w.to_vector<float>() == std::vector<float>{-1, -3.25});
    kernels->momentum(w.view(), gradient.view(), velocity.view(), step, 0.25);
    CHECK(velocity.to_vector<float>() == std::vector<float>{2.5, 1.375});
    CHECK(w.to_vector<float>() == std::vector<float>{-2.25, -3.9375});
    CHECK(gradient.to_vector<float>() == std::vector<float>{8, 4});
  }
}

TEST_CASE("updates round once per operation, in the order that is written down") {
  const auto kernels = make_update_kernels(Functions::of_library, Stream::host());
  const auto w = noise(DType::f32, {259}, 10);
  const auto g = noise(DType::f32, {259}, 11);
  const auto v = noise(DType::f32, {259}, 12);
  auto expected_v = v.to_vector<float>();
  auto expected_w = w.to_vector<float>();
  for (std::size_t i = 0; i < 259; ++i) {
    const volatile float kept = 0.9f * expected_v[i];  // volatile: no operation is fused with the next
    const volatile float mean = g.to_vector<float>()[i] / 250.f;
    const volatile float velocity = kept + mean;
    const volatile float step = 0.1f * velocity;
    expected_v[i] = velocity;
    expected_w[i] = expected_w[i] - step;
  }
  kernels->momentum(w.view(), g.view(), v.view(), {.learning_rate = 0.1, .divisor = 250}, 0.9);
  CHECK(v.to_vector<float>() == expected_v);
  CHECK(w.to_vector<float>() == expected_w);
}

TEST_CASE("decay is added to the gradient of sgd and momentum, after the factor") {
  for (const auto& kernels : both_kernels()) {
    const UpdateStep step{.learning_rate = 0.5, .divisor = 4, .factor = 0.5, .weight_decay = 0.25};
    const Tensor gradient = f64({16, 4}, {2});  // 2 and 0.5, as the step has it
    const Tensor w = f64({8, -4}, {2});
    kernels->sgd(w.view(), gradient.view(), step);
    CHECK(w.to_vector<double>() == std::vector<double>{8 - 0.5 * (2 + 2), -4 - 0.5 * (0.5 - 1)});

    const Tensor v = f64({1, 2}, {2});
    kernels->momentum(w.view(), gradient.view(), v.view(), step, 0.5);  // w is 6 and -3.75
    CHECK(v.to_vector<double>() == std::vector<double>{0.5 + 2 + 1.5, 1 + 0.5 - 0.9375});
    CHECK(w.to_vector<double>() == std::vector<double>{6 - 0.5 * 4, -3.75 - 0.5 * 0.5625});
  }
}

TEST_CASE("AdamW gives the numbers of a calculation by hand") {
  for (const auto& kernels : both_kernels()) {
    // The corrected moments of the first step are g and g^2, so it goes 3 / (3 + 1), and decays besides.
    const Tensor w = f32({4, -4}, {2});
    const Tensor gradient = f32({12, -12}, {2});
    const Tensor first = Tensor::zeros(DType::f32, {2});
    const Tensor second = Tensor::zeros(DType::f32, {2});
    const AdamWMoments moments{.beta1 = 0.5, .beta2 = 0.75, .epsilon = 1};
    kernels->adamw(w.view(), gradient.view(), first.view(), second.view(),
                   {.learning_rate = 0.5, .divisor = 2, .factor = 0.5, .weight_decay = 0.25}, moments);
    CHECK(first.to_vector<float>() == std::vector<float>{1.5, -1.5});
    CHECK(second.to_vector<float>() == std::vector<float>{2.25, 2.25});
    CHECK(w.to_vector<float>() == std::vector<float>{3.125, -3.125});
    CHECK(gradient.to_vector<float>() == std::vector<float>{12, -12});
  }
}

TEST_CASE("AdamW is the sums that its recursions stand for, over several steps") {
  const AdamWMoments moments{.beta1 = 0.8, .beta2 = 0.99, .epsilon = 1e-3};
  const UpdateStep scale{.learning_rate = 0.05, .divisor = 7, .factor = 0.6, .weight_decay = 0.1};
  for (const auto& kernels : both_kernels())
    for (const DType dtype : {DType::f32, DType::f64}) {
      const Tensor w = noise(dtype, {67}, 1);
      const std::vector<double> begin = in_double(w);
      const Tensor first = Tensor::zeros(dtype, {67});
      const Tensor second = Tensor::zeros(dtype, {67});
      std::vector<std::vector<double>> gradients(67);
      for (std::int64_t number = 1; number <= 6; ++number) {
        const Tensor gradient = noise(dtype, {67}, 10 + static_cast<std::uint64_t>(number));
        for (std::size_t i = 0; i < 67; ++i) gradients[i].push_back(in_double(gradient)[i] / 7 * 0.6);
        UpdateStep step = scale;
        step.number = number;
        kernels->adamw(w.view(), gradient.view(), first.view(), second.view(), step, moments);
      }
      // Weights are below 1.5, and each of six steps rounds one of them a few times, and a direction of about 1, times
      // 0.05, about twenty times.
      const double tolerance = 32 * epsilon_of(dtype);
      for (std::size_t i = 0; i < 67; ++i) {
        const double expected = adamw_in_double(begin[i], gradients[i], 0.05, 0.1, moments);
        CHECK(in_double(w)[i] == Approx(expected).margin(tolerance).epsilon(0));
      }
    }
}

TEST_CASE("an element that is not finite stays one, and the others do not see it") {
  const auto kernels = make_update_kernels(Functions::of_library, Stream::host());
  const Tensor w = f32({1, 1, 1}, {3});
  const Tensor first = Tensor::zeros(DType::f32, {3});
  const Tensor second = Tensor::zeros(DType::f32, {3});
  const Tensor gradient = f32({1, static_cast<float>(not_a_number), static_cast<float>(infinity)}, {3});
  kernels->adamw(w.view(), gradient.view(), first.view(), second.view(), {.learning_rate = 0.5}, {});
  CHECK(std::isfinite(w.to_vector<float>()[0]));
  CHECK(std::isnan(w.to_vector<float>()[1]));
  CHECK_FALSE(std::isfinite(w.to_vector<float>()[2]));
}

TEST_CASE("the sum of squares is exact where no rounding happens, over parts of any sizes and both types") {
  for (const auto& kernels : both_kernels()) {
    CHECK(kernels->sum_of_squares({}) == 0);
    const std::vector<TensorView> nothing{Tensor::zeros(DType::f32, {0}).view()};
    CHECK(kernels->sum_of_squares(nothing) == 0);

    const Tensor large = generate(DType::f32, {10000}, [](std::int64_t i) { return static_cast<double>(i % 100); });
    const Tensor small = f64({3, -4}, {1, 2});
    const std::vector<TensorView> parts{small.view(), nothing[0], large.view()};
    CHECK(kernels->sum_of_squares(parts) == 25 + 100 * 328350);  // 328350 = 0^2 + … + 99^2

    // In double: a float has no number for 2^200, and none for 1e8^2 + 1.
    const std::vector<TensorView> wide{f32({0x1p100F}, {1}).view()};
    CHECK(kernels->sum_of_squares(std::vector{f32({0x1p100F}, {1}).view()}) == 0x1p200);
    CHECK(kernels->sum_of_squares(std::vector{f32({1e8F, 1}, {2}).view()}) == 1e16 + 1);
  }
}

TEST_CASE("the sum of squares has the bits of the order that is written down, wherever its parts lie") {
  for (const auto& kernels : both_kernels())
    for (const DType dtype : {DType::f32, DType::f64})
      for (const std::int64_t count : {1, 255, 256, 257, 4095, 4096, 4097, 3 * 4096 + 5, 7 * 4096}) {
        CAPTURE(name_of(dtype), count);
        const Tensor x = noise(dtype, {count + 1}, 3);
        const Tensor y = noise(DType::f64, {300}, 4);
        const std::vector<TensorView> parts{x.view().slice(1, count), y.view()};
        std::vector<double> values = in_double(x);
        values.erase(values.begin());
        const double sum = kernels->sum_of_squares(parts);
        CHECK(same_number(sum, squares_in_order({values, in_double(y)})));
        CHECK_FALSE(same_number(sum, 0));

        const Tensor elsewhere = Tensor::copy_of(x.view().slice(1, count));
        CHECK(same_number(sum, kernels->sum_of_squares(std::vector{elsewhere.view(), y.view()})));
      }
}

TEST_CASE("sums of blocks, wherever they were made, add up to the sum of squares") {
  for (const auto& kernels : both_kernels())
    for (const DType dtype : {DType::f32, DType::f64}) {
      const Tensor x = noise(dtype, {3 * 4096 + 5}, 3), y = noise(dtype, {300}, 4);
      const Tensor sums = Tensor::zeros(DType::f64, {5});
      kernels->block_squares(x.view().slice(2 * 4096, 4096 + 5), sums.view().slice(2, 2));
      kernels->block_squares(y.view(), sums.view().slice(4, 1));
      kernels->block_squares(x.view().slice(0, 2 * 4096), sums.view().slice(0, 2));
      CHECK(same_number(UpdateKernels::sum_of_blocks(sums.to_vector<double>()),
                        kernels->sum_of_squares(std::vector{x.view(), y.view()})));
      CHECK(refusal([&] { kernels->block_squares(y.view(), sums.view()); }) ==
            "block_squares: f64[5] for the sums of " + std::string{name_of(dtype)} + "[300]; expected f64[1]");
    }
  CHECK(UpdateKernels::sum_of_blocks({}) == 0);
}

TEST_CASE("what is not finite shows in the sum of squares") {
  const auto kernels = make_update_kernels(Functions::of_library, Stream::host());
  const auto sum_with = [&](double odd) {
    const Tensor x = filled(DType::f64, {5000}, 1);
    x.view().elements<double>()[4321] = odd;
    return kernels->sum_of_squares(std::vector{x.view()});
  };
  CHECK(std::isnan(sum_with(not_a_number)));
  CHECK(sum_with(-infinity) == infinity);
  CHECK(sum_with(1e200) == infinity);
}

TEST_CASE("updates refuse operands of other shapes and types, and shared memory") {
  const Tensor a = Tensor::zeros(DType::f32, {2, 3});
  const Tensor also_a = Tensor::zeros(DType::f32, {2, 3});
  const Tensor third_a = Tensor::zeros(DType::f32, {2, 3});
  const Tensor b = Tensor::zeros(DType::f32, {3, 2});
  const Tensor i64s = Tensor::zeros(DType::i64, {2, 3});
  const UpdateStep step{.learning_rate = 1};
  for (const auto& kernels : both_kernels()) {
    const UpdateKernels& k = *kernels;
    const std::string shapes = ": f32[2, 3] and f32[3, 2] are not of one shape";
    CHECK(refusal([&] { k.sgd(a.view(), b.view(), step); }) == "sgd" + shapes);
    CHECK(refusal([&] { k.momentum(a.view(), b.view(), also_a.view(), step, 0.9); }) == "momentum" + shapes);
    CHECK(refusal([&] { k.momentum(a.view(), also_a.view(), b.view(), step, 0.9); }) == "momentum" + shapes);
    CHECK(refusal([&] { k.adamw(a.view(), also_a.view(), third_a.view(), b.view(), step, {}); }) == "adamw" + shapes);
    CHECK(refusal([&] { k.adamw(a.view(), also_a.view(), b.view(), third_a.view(), step, {}); }) == "adamw" + shapes);
    CHECK(refusal([&] {
            k.sum_of_squares(std::vector{a.view(), i64s.view()});
          }) == "sum_of_squares: expected f32 or f64, not i64[2, 3]");
    const Tensor narrow = Tensor::zeros(DType::bf16, {2, 2});
    CHECK(refusal([&] { k.sgd(narrow.view(), narrow.view(), step); }) == "sgd: expected f32 or f64, not bf16[2, 2]");

    const std::string overlap = ": f32[2, 3] and f32[2, 3] overlap in memory";
    const TensorView one = a.view(), two = also_a.view(), three = third_a.view();
    CHECK(refusal([&] { k.sgd(one, one, step); }) == "sgd" + overlap);
    for (const auto& [v, g, m] : {std::tuple{one, two, two}, std::tuple{one, two, one}, std::tuple{one, one, two}}) {
      CHECK(refusal([&, v = v, g = g, m = m] { k.momentum(v, g, m, step, 0.9); }) == "momentum" + overlap);
      CHECK(refusal([&, v = v, g = g, m = m] { k.adamw(v, g, m, three, step, {}); }) == "adamw" + overlap);
      CHECK(refusal([&, v = v, g = g, m = m] { k.adamw(v, g, three, m, step, {}); }) == "adamw" + overlap);
    }
  }
}

TEST_CASE("updates refuse numbers that no step has, and write nothing") {
  const auto kernels = make_update_kernels(Functions::of_library, Stream::host());
  const UpdateKernels& k = *kernels;
  const Tensor w = filled(DType::f32, {3}, 1), g = filled(DType::f32, {3}, 1);
  const Tensor m = filled(DType::f32, {3}, 1), v = filled(DType::f32, {3}, 1);
  const auto refused = [&](const UpdateStep& step, const std::string& message) {
    CHECK(refusal([&] { k.sgd(w.view(), g.view(), step); }) == "sgd: " + message);
    CHECK(refusal([&] { k.momentum(w.view(), g.view(), m.view(), step, 0.9); }) == "momentum: " + message);
    CHECK(refusal([&] { k.adamw(w.view(), g.view(), m.view(), v.view(), step, {}); }) == "adamw: " + message);
  };
  refused({.learning_rate = 1, .divisor = 0}, "the divisor is 0, expected a positive number");
  refused({.learning_rate = 1, .divisor = -1}, "the divisor is -1, expected a positive number");
  refused({.learning_rate = 1, .divisor = not_a_number}, "the divisor is nan, expected a positive number");
  refused({.learning_rate = 1, .divisor = infinity}, "the divisor is inf, expected a positive number");
  refused({.learning_rate = -1}, "the learning rate is -1, expected a number from 0");
  refused({.learning_rate = not_a_number}, "the learning rate is nan, expected a number from 0");
  refused({.learning_rate = 1, .factor = -0.5}, "the factor is -0.5, expected a number from 0");
  refused({.learning_rate = 1, .factor = infinity}, "the factor is inf, expected a number from 0");
  refused({.learning_rate = 1, .weight_decay = -1}, "the weight decay is -1, expected a number from 0");
  refused({.learning_rate = 1, .number = 0}, "the number of the step is 0, expected 1 or more");
  const auto refused_moments = [&](const AdamWMoments& moments, const std::string& message) {
    CHECK(refusal([&] { k.adamw(w.view(), g.view(), m.view(), v.view(), {.learning_rate = 1}, moments); }) ==
          "adamw: " + message);
  };
  refused_moments({.beta1 = 1}, "the beta1 is 1, expected a number from 0 to below 1");
  refused_moments({.beta2 = -0.1}, "the beta2 is -0.1, expected a number from 0 to below 1");
  refused_moments({.epsilon = 0}, "the epsilon is 0, expected a positive number");
  CHECK(refusal([&] { k.momentum(w.view(), g.view(), m.view(), {.learning_rate = 1}, 1); }) ==
        "momentum: the momentum is 1, expected a number from 0 to below 1");
  for (const Tensor& each : {w, g, m, v}) CHECK(each.to_vector<float>() == std::vector<float>{1, 1, 1});
}

}  // namespace lockstep::test::update_cases
