// Batch normalisation and dropout.
#include <cmath>
#include <functional>

#include <catch2/catch.hpp>

#include <lockstep/core/base/error.hpp>
#include <lockstep/models/ops/kernels.hpp>

#include "models/ops/image_kernels.hpp"
#include "ops_support.hpp"

using namespace lockstep;
using namespace lockstep::ops;

namespace {

constexpr DType types[]{DType::f32, DType::f64};

TensorView samples_of(const Tensor& x, std::int64_t first, std::int64_t count) {
  Shape shape = x.shape();
  const std::int64_t size = x.count() / shape[0];
  shape[0] = count;
  return x.view().slice(first * size, count * size).reshaped(shape);
}

/// Whole numbers from 0 to 7.
Tensor integers(DType dtype, Shape shape) {
  const RandomStream stream{5, RandomStream::Purpose::initial_value, 0};
  return generate(dtype, std::move(shape),
                  [&](std::int64_t i) { return static_cast<double>(stream.below(8, static_cast<std::uint64_t>(i))); });
}

/// Means and variances of a batch, by which it is normalised.
struct Statistics {
  Tensor mean, variance;
  std::int64_t samples;

  Statistics(const Kernels& kernels, const TensorView& x)
      : mean{filled(x.dtype(), {x.shape().back()}, not_a_number)},
        variance{filled(x.dtype(), {x.shape().back()}, not_a_number)},
        samples{x.shape()[0]} {
    kernels.image().channel_means(x, mean.view());
    kernels.image().channel_variances(x, mean.view(), samples, variance.view());
  }
  Normalisation by(double epsilon = 0.25) const { return {mean.view(), variance.view(), samples, epsilon}; }
};

/// A channel's elements, and the batch norm of them by its definition.
std::vector<double> channel(const Tensor& x, std::size_t which) {
  std::vector<double> elements;
  const auto all = in_double(x);
  for (std::size_t i = which; i < all.size(); i += static_cast<std::size_t>(x.shape().back()))
    elements.push_back(all[i]);
  return elements;
}
std::vector<double> normalised(const std::vector<double>& x, double epsilon) {
  double mean = 0, square = 0;
  for (const double each : x) mean += each / static_cast<double>(x.size());
  for (const double each : x) square += each * each / static_cast<double>(x.size());
  std::vector<double> result;
  for (const double each : x) result.push_back((each - mean) / std::sqrt(square - mean * mean + epsilon));
  return result;
}

}  // namespace

TEST_CASE("means and variances of channels are sums over samples, and those of shards add up exactly") {
  for (const auto& kernels : all_kernels())
    for (const DType dtype : types) {
      CAPTURE(kernels->name(), name_of(dtype));
      // Sums of integers, divided by powers of two: 4 positions, 8 samples.
      const Tensor x = integers(dtype, {8, 2, 2, 5});
      const Statistics whole{*kernels, x.view()};
      for (std::size_t c = 0; c < 5; ++c) {
        const auto elements = channel(x, c);
        double sum = 0, squares = 0;
        for (const double each : elements) sum += each;
        const double mean = sum / 32;
        for (const double each : elements) squares += (each - mean) * (each - mean);
        CHECK(in_double(whole.mean)[c] == sum / 4);
        CHECK(in_double(whole.variance)[c] == squares / 4);
      }

      std::vector<double> means(5), variances(5);
      for (const auto& [first, count] : {std::pair{0, 3}, std::pair{3, 0}, std::pair{3, 5}}) {
        const TensorView shard = samples_of(x, first, count);
        const Tensor mean = filled(dtype, {5}, not_a_number), variance = filled(dtype, {5}, not_a_number);
        kernels->image().channel_means(shard, mean.view());
        kernels->image().channel_variances(shard, whole.mean.view(), 8, variance.view());
        for (std::size_t c = 0; c < 5; ++c) {
          means[c] += in_double(mean)[c];
          variances[c] += in_double(variance)[c];
          if (count == 0) CHECK((in_double(mean)[c] == 0 && !std::signbit(in_double(mean)[c])));
        }
      }
      CHECK(means == in_double(whole.mean));
      CHECK(variances == in_double(whole.variance));
    }
}

TEST_CASE("the variance of numbers far from zero is not lost") {
  for (const auto& kernels : all_kernels()) {
    // 2^20 and 2^20 + 2 in turn: in f32 their squares have no room for what sets them apart.
    const Tensor x = generate(DType::f32, {4, 8, 1}, [](std::int64_t i) { return 0x1p20 + 2 * (i % 2); });
    const Statistics statistics{*kernels, x.view()};
    CHECK(statistics.mean.to_vector<float>()[0] == 4 * (0x1p20f + 1));
    CHECK(statistics.variance.to_vector<float>()[0] == 4);
  }
}

TEST_CASE("batch norm is what its definition says, in any number of dimensions") {
  for (const auto& kernels : all_kernels())
    for (const DType dtype : types)
      for (const Shape& shape : {Shape{3, 4, 5, 6}, Shape{7, 3}, Shape{1, 3, 33}}) {
        CAPTURE(kernels->name(), name_of(dtype), describe(shape));
        const Tensor x = noise(dtype, shape, 1);
        const Tensor gamma = noise(dtype, {shape.back()}, 2), beta = noise(dtype, {shape.back()}, 3);
        const Tensor y = filled(dtype, shape, not_a_number);
        kernels->image().batch_norm(x.view(), Statistics{*kernels, x.view()}.by(), gamma.view(), beta.view(), y.view());
        // Some ten roundings of numbers around 1.
        const double margin = dtype == DType::f64 ? 1e-14 : 1e-6;
        for (std::size_t c = 0; c < static_cast<std::size_t>(shape.back()); ++c) {
          const auto expected = normalised(channel(x, c), 0.25), found = channel(y, c);
          for (std::size_t i = 0; i < found.size(); ++i)
            CHECK(found[i] == Approx(in_double(gamma)[c] * expected[i] + in_double(beta)[c]).epsilon(0).margin(margin));
        }
      }
}

TEST_CASE("batch norm divides its statistics by their samples, however many it normalises") {
  for (const auto& kernels : all_kernels()) {
    const Tensor mean = f64({6, -3}, {2}), variance = f64({12, 3}, {2});
    const Tensor one = f64({1, 1}, {2}), zero = f64({0, 0}, {2}), y = f64({0, 0, 0, 0}, {2, 2});
    kernels->image().batch_norm(f64({4, 0, 2, -1}, {2, 2}).view(), {mean.view(), variance.view(), 3, 0}, one.view(),
                                zero.view(), y.view());
    CHECK(y.to_vector<double>() == std::vector<double>{1, 1, 0, 0});
  }
}

TEST_CASE("the gradients of batch norm agree with finite differences") {
  const Shape shape{3, 2, 2, 3};
  const auto kernels = make_kernels(Kernels::Choice::reference);
  const Tensor x = noise(DType::f64, shape, 1), weights = noise(DType::f64, shape, 4);
  const Tensor gamma = noise(DType::f64, {3}, 2), beta = noise(DType::f64, {3}, 3);
  // The loss: a weighted sum of what batch norm gives, with statistics of its own input.
  const auto loss = [&] {
    const Tensor y = Tensor::zeros(DType::f64, shape);
    kernels->image().batch_norm(x.view(), Statistics{*kernels, x.view()}.by(), gamma.view(), beta.view(), y.view());
    double sum = 0;
    for (std::size_t i = 0; i < 36; ++i) sum += y.to_vector<double>()[i] * weights.to_vector<double>()[i];
    return sum;
  };
  const Statistics statistics{*kernels, x.view()};
  const Tensor d_gamma = filled(DType::f64, {3}, not_a_number), d_beta = filled(DType::f64, {3}, not_a_number);
  const Tensor dx = filled(DType::f64, shape, not_a_number);
  kernels->image().batch_norm_gradients(x.view(), statistics.by(), weights.view(), d_gamma.view(), d_beta.view());
  kernels->image().batch_norm_input_gradient(x.view(), statistics.by(), gamma.view(), weights.view(), d_gamma.view(),
                                             d_beta.view(), dx.view());
  // Central differences: off by h^2 = 1e-10 times the third derivative, some 10, and by 1e-15 / h.
  const double h = 1e-5;
  const auto agrees = [&](const Tensor& variable, const Tensor& gradient) {
    const std::span<double> values = variable.view().elements<double>();
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double before = values[i];
      values[i] = before + h;
      const double above = loss();
      values[i] = before - h;
      const double below = loss();
      values[i] = before;
      CHECK(gradient.to_vector<double>()[i] == Approx((above - below) / (2 * h)).epsilon(0).margin(2e-9));
    }
  };
  agrees(gamma, d_gamma);
  agrees(beta, d_beta);
  agrees(x, dx);
}

TEST_CASE("the gradients of shards that are normalised together add up to the batch's") {
  for (const auto& kernels : all_kernels())
    for (const DType dtype : types) {
      const Shape shape{6, 2, 3};
      const Tensor x = noise(dtype, shape, 1), dy = noise(dtype, shape, 2), gamma = noise(dtype, {3}, 3);
      const Statistics statistics{*kernels, x.view()};
      const auto gradients = [&](std::int64_t first, std::int64_t count) {
        const Tensor d_gamma = Tensor::zeros(dtype, {3}), d_beta = Tensor::zeros(dtype, {3});
        kernels->image().batch_norm_gradients(samples_of(x, first, count), statistics.by(),
                                              samples_of(dy, first, count), d_gamma.view(), d_beta.view());
        return std::pair{d_gamma, d_beta};
      };
      const auto [d_gamma, d_beta] = gradients(0, 6);
      const auto [first_gamma, first_beta] = gradients(0, 2);
      const auto [rest_gamma, rest_beta] = gradients(2, 4);
      // A dozen terms around 1, rounded once where there is one sum and three times where there are two.
      const double margin = dtype == DType::f64 ? 1e-14 : 2e-6;
      for (std::size_t c = 0; c < 3; ++c) {
        CHECK(in_double(first_gamma)[c] + in_double(rest_gamma)[c] ==
              Approx(in_double(d_gamma)[c]).epsilon(0).margin(margin));
        CHECK(in_double(first_beta)[c] + in_double(rest_beta)[c] ==
              Approx(in_double(d_beta)[c]).epsilon(0).margin(margin));
      }
      const Tensor whole = Tensor::zeros(dtype, shape), parts = Tensor::copy_of(dy.view());
      kernels->image().batch_norm_input_gradient(x.view(), statistics.by(), gamma.view(), dy.view(), d_gamma.view(),
                                                 d_beta.view(), whole.view());
      for (const auto& [first, count] : {std::pair{0, 2}, std::pair{2, 4}}) {
        const TensorView in_place = samples_of(parts, first, count);
        kernels->image().batch_norm_input_gradient(samples_of(x, first, count), statistics.by(), gamma.view(), in_place,
                                                   d_gamma.view(), d_beta.view(), in_place);
      }
      CHECK(same_bits(parts.view(), whole.view()));
    }
}

TEST_CASE("a moving average takes in a sum's mean") {
  for (const auto& kernels : all_kernels())
    for (const DType dtype : types) {
      const Tensor average = generate(dtype, {2}, [](std::int64_t i) { return i == 0 ? 8 : -2; });
      const Tensor sum = generate(dtype, {2}, [](std::int64_t i) { return i == 0 ? 48 : 6; });
      kernels->image().moving_average(average.view(), sum.view(), 3, 0.75);
      CHECK(in_double(average) == std::vector<double>{10, -1});
      for (const double divisor : {0., -1., infinity, not_a_number})
        CHECK_THROWS_AS(kernels->image().moving_average(average.view(), sum.view(), divisor, 0.5), InvalidArgument);
      CHECK_THROWS_AS(kernels->image().moving_average(average.view(), average.view(), 1, 0.5), InvalidArgument);
      CHECK(in_double(average) == std::vector<double>{10, -1});
    }
}

TEST_CASE("a dropout mask is a function of the stream and each element's index") {
  const RandomStream stream{9, RandomStream::Purpose::dropout, 4};
  for (const auto& kernels : all_kernels())
    for (const DType dtype : types)
      for (const double rate : {0.0, 0.25, 0.5, 0.9}) {
        CAPTURE(kernels->name(), name_of(dtype), rate);
        const Tensor mask = filled(dtype, {30, 40}, not_a_number);
        kernels->image().dropout_mask(stream, 1000, rate, mask.view());
        std::vector<std::uint32_t> words(1200);
        stream.words(1000, words);
        const double kept = dtype == DType::f32 ? static_cast<float>(1 / (1 - rate)) : 1 / (1 - rate);
        double dropped = 0;
        for (std::size_t i = 0; i < 1200; ++i) {
          const bool drop = words[i] < rate * 0x1p32;
          CHECK(in_double(mask)[i] == (drop ? 0 : kept));
          dropped += drop;
        }
        // Five standard deviations of a binomial distribution.
        CHECK(std::abs(dropped - 1200 * rate) <= 5 * std::sqrt(1200 * rate * (1 - rate)));

        const Tensor part = filled(dtype, {7, 40}, not_a_number);
        kernels->image().dropout_mask(stream, 1000 + 11 * 40, rate, part.view());
        CHECK(same_bits(part.view(), samples_of(mask, 11, 7)));
      }
}

TEST_CASE("a dropout rate that is no probability below 1 is refused") {
  const RandomStream stream{9, RandomStream::Purpose::dropout, 4};
  for (const auto& kernels : all_kernels()) {
    const Tensor mask = f32({7}, {1});
    for (const double rate : {-0.1, 1.0, 1.5, not_a_number}) {
      CHECK_THROWS_AS(kernels->image().dropout_mask(stream, 0, rate, mask.view()), InvalidArgument);
      CHECK_THROWS_WITH(kernels->image().dropout_mask(stream, 0, rate, mask.view()),
                        Catch::Contains("expected a number from 0 to below 1"));
    }
    CHECK(mask.to_vector<float>()[0] == 7);
  }
}

TEST_CASE("products of elements keep a NaN, and may be made in place") {
  for (const auto& kernels : all_kernels()) {
    const Tensor x = f32({3, static_cast<float>(not_a_number), -2, static_cast<float>(infinity)}, {4});
    const Tensor factors = f32({2, 0, 0.5f, 0}, {4}), y = f32({9, 9, 9, 9}, {4});
    for (const Tensor& to : {y, x}) {
      kernels->image().multiply(x.view(), factors.view(), to.view());
      const auto found = to.to_vector<float>();
      CHECK((found[0] == 6 && std::isnan(found[1]) && found[2] == -1 && std::isnan(found[3])));
    }
    CHECK_THROWS_WITH(kernels->image().multiply(x.view(), factors.view(), factors.view()),
                      "multiply: f32[4] and f32[4] overlap in memory");
    CHECK_THROWS_WITH(kernels->image().multiply(x.view(), factors.view().slice(0, 3), y.view()),
                      "multiply: f32[3] and f32[4] are not of one shape");
  }
}

TEST_CASE("batch norm refuses operands that do not fit, and writes nothing") {
  const Tensor x = noise(DType::f32, {4, 2, 3}, 1), dy = noise(DType::f32, {4, 2, 3}, 2);
  const Tensor v = noise(DType::f32, {3}, 3), w = noise(DType::f32, {3}, 4), out = noise(DType::f32, {3}, 5);
  const Tensor other = noise(DType::f32, {3}, 7), y = noise(DType::f32, {4, 2, 3}, 6);
  const Tensor before_out = Tensor::copy_of(out.view()), before_y = Tensor::copy_of(y.view());
  const auto two = v.view().slice(0, 2);
  const Normalisation good{v.view(), w.view(), 4};
  for (const auto& kernels : all_kernels()) {
    const auto refused = [](const std::function<void()>& call, const std::string& message) {
      CHECK_THROWS_AS(call(), InvalidArgument);
      CHECK_THROWS_WITH(call(), message);
    };
    refused([&] { kernels->image().channel_means(x.view(), two); },
            "channel_means: f32[2] does not fit the channels of f32[4, 2, 3], expected [3]");
    refused([&] { kernels->image().channel_means(x.view().slice(0, 3), out.view()); },
            "channel_means: expected two dimensions or more, not f32[3]");
    refused([&] { kernels->image().channel_means(x.view(), x.view().slice(3, 3)); },
            "channel_means: f32[4, 2, 3] and f32[3] overlap in memory");
    refused([&] { kernels->image().channel_variances(x.view(), v.view(), 0, out.view()); },
            "channel_variances: the mean is a sum over 0 samples, expected 1 or more");
    refused([&] { kernels->image().channel_variances(x.view(), v.view(), 4, v.view()); },
            "channel_variances: f32[3] and f32[3] overlap in memory");
    refused(
        [&] {
          kernels->image().batch_norm(x.view(), {v.view(), two, 4}, out.view(), other.view(), y.view());
        },
        "batch_norm: f32[2] does not fit the channels of f32[4, 2, 3], expected [3]");
    refused(
        [&] {
          kernels->image().batch_norm(x.view(), {v.view(), w.view(), 0}, out.view(), other.view(), y.view());
        },
        "batch_norm: the mean is a sum over 0 samples, expected 1 or more");
    refused([&] { kernels->image().batch_norm(x.view(), good, out.view(), other.view(), x.view()); },
            "batch_norm: f32[4, 2, 3] and f32[4, 2, 3] overlap in memory");
    refused(
        [&] {
          kernels->image().batch_norm(x.view(), good, out.view(), other.view(), y.view().reshaped({8, 3}));
        },
        "batch_norm: f32[4, 2, 3] and f32[8, 3] are not of one shape");
    refused([&] { kernels->image().batch_norm_gradients(x.view(), good, dy.view(), out.view(), out.view()); },
            "batch_norm_gradients: f32[3] and f32[3] overlap in memory");
    refused(
        [&] {
          kernels->image().batch_norm_gradients(x.view(), good, dy.view().reshaped({8, 3}), out.view(), other.view());
        },
        "batch_norm_gradients: f32[4, 2, 3] and f32[8, 3] are not of one shape");
    refused(
        [&] {
          kernels->image().batch_norm_input_gradient(x.view(), good, v.view(), dy.view(), out.view(), two, y.view());
        },
        "batch_norm_input_gradient: f32[2] does not fit the channels of f32[4, 2, 3], expected [3]");
    refused(
        [&] {
          kernels->image().batch_norm_input_gradient(x.view(), good, v.view(), dy.view(), out.view(), other.view(),
                                                     x.view());
        },
        "batch_norm_input_gradient: f32[4, 2, 3] and f32[4, 2, 3] overlap in memory");
  }
  CHECK(same_bits(out.view(), before_out.view()));
  CHECK(same_bits(y.view(), before_y.view()));
}
