// Kernels for sequences, against plain arithmetic.
#include <cmath>
#include <functional>
#include <string>

#include <catch2/catch.hpp>

#include <lockstep/core/base/error.hpp>
#include <lockstep/models/ops/kernels.hpp>

#include "core/device/device.hpp"
#include "core/tensor/inside.hpp"
#include "models/ops/sequence_kernels.hpp"
#include "ops_support.hpp"

using namespace lockstep;
using namespace lockstep::ops;

namespace {

using Values = std::vector<double>;

Tensor unset(DType dtype, Shape shape) {
  return filled(dtype, std::move(shape), not_a_number);  // overwritten: what was there must not show
}

/// How far `found` may be from what was computed in double: some roundings of numbers of about `size`.
double tolerance(DType dtype, double size = 1) {
  return size * (dtype == DType::f64 ? 0x1p-53 : 0x1p-24);
}

void require_close(const Tensor& found, const Values& expected, double margin) {
  const Values values = in_double(found);
  REQUIRE(values.size() == expected.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    INFO("element " << i);
    REQUIRE(values[i] == Approx(expected[i]).epsilon(0).margin(margin));
  }
}

/// The slope of `loss` in every element of `x`, by central differences.
Values slopes(const Tensor& x, const std::function<double()>& loss) {
  constexpr double h = 1e-5;
  Values found;
  for (double& value : x.view().elements<double>()) {
    const double before = value;
    value = before + h;
    const double above = loss();
    value = before - h;
    found.push_back((above - loss()) / (2 * h));
    value = before;
  }
  return found;
}

/// Central differences are off by h^2 times a third derivative of about one, and by the rounding of the loss over h:
/// both are near 1e-10.
constexpr double slope_margin = 1e-8;

/// Some loss of y: its product with fixed numbers, which are then the gradient of y.
double dot(const Tensor& y, const Tensor& dy) {
  double sum = 0;
  const Values a = in_double(y), b = in_double(dy);
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

/// The elements of `t`, one element further in memory than an aligned address.
Tensor shifted(const Tensor& t) {
  const Tensor room = Tensor::zeros(t.dtype(), {t.count() + 1});
  const auto all = std::make_shared<const Tensor>(room);
  const TensorView view = room.view().slice(1, t.count()).reshaped(t.shape());
  copy(t.view(), view);
  // The memory lives as long as the tensor that is made of it.
  return tensor_in(std::shared_ptr<const Buffer>{all, nullptr}, view);
}

struct NormResult {
  Tensor y;
  Tensor moments;
};

NormResult layer_norm(const Kernels& kernels, const Tensor& x, const Tensor& gain, const Tensor& bias, double epsilon) {
  const NormResult result{unset(x.dtype(), x.shape()), unset(x.dtype(), {x.shape()[0], 2})};
  kernels.sequence().layer_norm({.x = x.view(),
                                 .gain = gain.view(),
                                 .bias = bias.view(),
                                 .epsilon = epsilon,
                                 .y = result.y.view(),
                                 .moments = result.moments.view()});
  return result;
}

struct Sizes {
  std::int64_t windows, context, heads, head_width;

  std::int64_t positions() const { return windows * context; }
  std::int64_t width() const { return heads * head_width; }
  Shape qkv() const { return {positions(), 3 * width()}; }
  Shape rows() const { return {positions(), width()}; }
  Shape probabilities() const { return {windows, heads, context, context}; }
};

struct Attention {
  Tensor probabilities;
  Tensor y;
};

Attention attention(const Kernels& kernels, const Sizes& sizes, const Tensor& qkv) {
  const Attention result{unset(qkv.dtype(), sizes.probabilities()), unset(qkv.dtype(), sizes.rows())};
  kernels.sequence().causal_attention({.qkv = qkv.view(), .kept = result.probabilities.view(), .y = result.y.view()});
  return result;
}

Tensor attention_gradient(const Kernels& kernels, const Sizes& sizes, const Tensor& qkv, const Tensor& probabilities,
                          const Tensor& dy) {
  const Tensor d_qkv = unset(qkv.dtype(), sizes.qkv());
  kernels.sequence().causal_attention_gradient(
      {.qkv = qkv.view(),
       .kept = probabilities.view(),
       .dy = dy.view(),
       .d_qkv = d_qkv.view(),
       .scratch = unset(qkv.dtype(), {sizes.heads, sizes.context, sizes.context}).view()});
  return d_qkv;
}

/// Position by position, straight from the definition, in double.
Values naive_attention(const Sizes& s, const Values& qkv) {
  const auto at = [&](std::int64_t position, std::int64_t part, std::int64_t head, std::int64_t j) {
    return qkv[static_cast<std::size_t>(((position * 3 + part) * s.heads + head) * s.head_width + j)];
  };
  Values y(static_cast<std::size_t>(s.positions() * s.width()));
  for (std::int64_t query = 0; query < s.positions(); ++query)
    for (std::int64_t head = 0; head < s.heads; ++head) {
      Values weights;
      double sum = 0;
      const std::int64_t first = query / s.context * s.context;
      for (std::int64_t key = first; key <= query; ++key) {
        double score = 0;
        for (std::int64_t j = 0; j < s.head_width; ++j) score += at(query, 0, head, j) * at(key, 1, head, j);
        weights.push_back(std::exp(score / std::sqrt(static_cast<double>(s.head_width))));
        sum += weights.back();
      }
      for (std::int64_t key = first; key <= query; ++key)
        for (std::int64_t j = 0; j < s.head_width; ++j)
          y[static_cast<std::size_t>((query * s.heads + head) * s.head_width + j)] +=
              weights[static_cast<std::size_t>(key - first)] / sum * at(key, 2, head, j);
    }
  return y;
}

const std::vector<Sizes> all_sizes{{1, 1, 1, 1}, {2, 5, 1, 3}, {1, 9, 2, 4}, {3, 17, 3, 5}, {2, 33, 4, 16}};

}  // namespace

TEST_CASE("rows are gathered by their indices, and added to in the order of the rows") {
  for (const auto& kernels : all_kernels()) {
    const Tensor table = f32({1, 2, 3, 4, 5, 6}, {3, 2});
    const Tensor rows = unset(DType::f32, {4, 2});
    kernels->sequence().gather_rows(table.view(), i32({2, 0, 2, 1}).view(), rows.view()).wait();
    CHECK(in_double(rows) == Values{5, 6, 1, 2, 5, 6, 3, 4});

    kernels->sequence().scatter_add_rows(f32({10, 20, 30, 40, 50, 60}, {3, 2}).view(), i32({1, 1, 0}).view(),
                                         table.view());
    CHECK(in_double(table) == Values{51, 62, 43, 64, 5, 6});

    // In floats (1 + 2^25) - 2^25 is 0; in the opposite order these three make 1.
    const Tensor sum = f32({0}, {1, 1});
    kernels->sequence().scatter_add_rows(f32({1, 0x1p25f, -0x1p25f}, {3, 1}).view(), i32({0, 0, 0}).view(), sum.view());
    CHECK(in_double(sum) == Values{0});
  }
}

TEST_CASE("layer norm is its definition, for every width") {
  for (const auto& kernels : all_kernels())
    for (const DType dtype : {DType::f32, DType::f64})
      for (const std::int64_t width : {1, 2, 7, 8, 9, 16, 61, 128}) {
        const std::int64_t rows = 5;
        const Tensor x = noise(dtype, {rows, width}, 1);
        const Tensor gain = noise(dtype, {width}, 2);
        const Tensor bias = noise(dtype, {width}, 3);
        const NormResult result = layer_norm(*kernels, x, gain, bias, 0.1);

        Values expected, moments;
        const Values in = in_double(x), g = in_double(gain), b = in_double(bias);
        for (std::int64_t row = 0; row < rows; ++row) {
          const auto at = [&](std::int64_t j) { return in[static_cast<std::size_t>(row * width + j)]; };
          double mean = 0, variance = 0;
          for (std::int64_t j = 0; j < width; ++j) mean += at(j) / static_cast<double>(width);
          for (std::int64_t j = 0; j < width; ++j)
            variance += (at(j) - mean) * (at(j) - mean) / static_cast<double>(width);
          const double deviation = std::sqrt(variance + 0.1);
          for (std::int64_t j = 0; j < width; ++j)
            expected.push_back((at(j) - mean) / deviation * g[static_cast<std::size_t>(j)] +
                               b[static_cast<std::size_t>(j)]);
          moments.push_back(mean);
          moments.push_back(1 / deviation);
        }
        // Sums of up to 128 numbers below one, and numbers below 4 that are made of them.
        require_close(result.y, expected, tolerance(dtype, 128));
        require_close(result.moments, moments, tolerance(dtype, 128));
      }
}

TEST_CASE("the gradients of layer norm agree with finite differences") {
  for (const auto& kernels : all_kernels()) {
    const Tensor x = noise(DType::f64, {3, 11}, 1), gain = noise(DType::f64, {11}, 2);
    const Tensor bias = noise(DType::f64, {11}, 3), dy = noise(DType::f64, {3, 11}, 4);
    const auto loss = [&] { return dot(layer_norm(*kernels, x, gain, bias, 0.1).y, dy); };
    const Tensor moments = layer_norm(*kernels, x, gain, bias, 0.1).moments;
    const Tensor dx = unset(DType::f64, {3, 11}), d_gain = unset(DType::f64, {11}), d_bias = unset(DType::f64, {11});
    const auto run = [&](const Tensor& from, const Tensor& to) {
      kernels->sequence().layer_norm_gradient({.x = x.view(),
                                               .gain = gain.view(),
                                               .moments = moments.view(),
                                               .dy = from.view(),
                                               .dx = to.view(),
                                               .d_gain = d_gain.view(),
                                               .d_bias = d_bias.view()});
    };
    run(dy, dx);
    require_close(dx, slopes(x, loss), slope_margin);
    require_close(d_gain, slopes(gain, loss), slope_margin);
    require_close(d_bias, slopes(bias, loss), slope_margin);

    const Tensor in_place = Tensor::copy_of(dy.view());
    run(in_place, in_place);
    CHECK(same_bits(in_place.view(), dx.view()));
  }
}

TEST_CASE("gelu is its tanh form, and its gradient the slope of that") {
  // By Python's math.tanh.
  const Values at{-10, -3, -1, -0.5, 0, 0.5, 1, 3, 10};
  const Values expected{0, -0.0036373920817729943, -0.15880800939172324, -0.15428599017485606,
                        0, 0.34571400982514394,    0.8411919906082768,   2.996362607918227,
                        10};
  for (const auto& kernels : all_kernels())
    for (const DType dtype : {DType::f32, DType::f64}) {
      const std::int64_t n = 9;
      const Tensor x = generate(dtype, {n}, [&](std::int64_t i) { return at[static_cast<std::size_t>(i)]; });
      const Tensor y = unset(dtype, {n});
      kernels->sequence().gelu(x.view(), y.view());
      // Some roundings of 1 + tanh, times x.
      require_close(y, expected, tolerance(dtype, 16));
      kernels->sequence().gelu(x.view(), x.view());
      CHECK(same_bits(x.view(), y.view()));
    }

  const auto reference = make_kernels(Kernels::Choice::reference);
  const Tensor x = generate(DType::f64, {41}, [](std::int64_t i) { return 0.2 * static_cast<double>(i - 20); });
  const Tensor dy = noise(DType::f64, {41}, 1), y = unset(DType::f64, {41});
  const Values slope = slopes(x, [&] {
    reference->sequence().gelu(x.view(), y.view());
    return dot(y, dy);
  });
  for (const auto& kernels : all_kernels())
    for (const DType dtype : {DType::f32, DType::f64}) {
      const auto as = [&](const Tensor& t) {
        const Values values = in_double(t);
        return generate(dtype, {41}, [&](std::int64_t i) { return values[static_cast<std::size_t>(i)]; });
      };
      const Tensor narrow = as(x), gradient = as(dy), dx = unset(dtype, {41});
      kernels->sequence().gelu_gradient(narrow.view(), gradient.view(), dx.view());
      // The slope is below 1.2. In f32 the square of a tanh near one loses some of its digits.
      require_close(dx, slope, dtype == DType::f64 ? slope_margin : tolerance(dtype, 32));
      kernels->sequence().gelu_gradient(narrow.view(), gradient.view(), gradient.view());
      CHECK(same_bits(gradient.view(), dx.view()));
    }
}

TEST_CASE("a NaN goes through gelu, layer norm and attention") {
  for (const auto& kernels : all_kernels()) {
    const Tensor x = filled(DType::f32, {20}, not_a_number), y = filled(DType::f32, {20}, 0);
    kernels->sequence().gelu(x.view(), y.view());
    for (const double value : in_double(y)) CHECK(std::isnan(value));
    kernels->sequence().gelu_gradient(x.view(), filled(DType::f32, {20}, 1).view(), y.view());
    for (const double value : in_double(y)) CHECK(std::isnan(value));

    const Tensor one = generate(DType::f32, {2, 9}, [](std::int64_t i) { return i == 3 ? not_a_number : 1.0; });
    const Tensor ones = filled(DType::f32, {9}, 1);
    const Values normed = in_double(layer_norm(*kernels, one, ones, ones, 1e-5).y);
    for (std::size_t i = 0; i < 18; ++i) CHECK(std::isnan(normed[i]) == (i < 9));

    const Sizes sizes{2, 4, 1, 2};
    const Tensor qkv = generate(DType::f32, sizes.qkv(), [](std::int64_t i) { return i == 0 ? not_a_number : 0.5; });
    const Values mixed = in_double(attention(*kernels, sizes, qkv).y);
    CHECK(std::isnan(mixed[0]));
    CHECK(mixed[8] == 0.5);  // of the other window
  }
}

TEST_CASE("causal attention is its definition, for every shape") {
  for (const auto& kernels : all_kernels())
    for (const DType dtype : {DType::f32, DType::f64})
      for (const Sizes& sizes : all_sizes) {
        const Tensor qkv = noise(dtype, sizes.qkv(), 5);
        const Attention result = attention(*kernels, sizes, qkv);
        // A score is a sum of up to 16 products below one, its rounding that of the probabilities' exponents; y is a
        // mean of up to 33 numbers below one.
        require_close(result.y, naive_attention(sizes, in_double(qkv)), tolerance(dtype, 64));

        const Values p = in_double(result.probabilities);
        for (std::int64_t row = 0; row < sizes.windows * sizes.heads * sizes.context; ++row) {
          double sum = 0;
          for (std::int64_t j = 0; j < sizes.context; ++j) {
            const double each = p[static_cast<std::size_t>(row * sizes.context + j)];
            if (j > row % sizes.context) REQUIRE(each == 0);
            sum += each;
          }
          REQUIRE(sum == Approx(1).epsilon(0).margin(tolerance(dtype, 64)));
        }
      }
}

TEST_CASE("the gradient of causal attention agrees with finite differences") {
  const auto reference = make_kernels(Kernels::Choice::reference);
  for (const Sizes& sizes : {Sizes{1, 1, 1, 1}, Sizes{2, 5, 2, 3}, Sizes{1, 10, 3, 4}}) {
    const Tensor qkv = noise(DType::f64, sizes.qkv(), 6), dy = noise(DType::f64, sizes.rows(), 7);
    const Values slope = slopes(qkv, [&] { return dot(attention(*reference, sizes, qkv).y, dy); });
    for (const auto& kernels : all_kernels()) {
      const Tensor p = attention(*kernels, sizes, qkv).probabilities;
      require_close(attention_gradient(*kernels, sizes, qkv, p, dy), slope, slope_margin);
    }
  }
}

TEST_CASE("attention in f32 is close to attention in f64, forwards and backwards, on every kernel") {
  const auto reference = make_kernels(Kernels::Choice::reference);
  const Sizes sizes{2, 128, 4, 32};
  const auto both = [&](const Kernels& kernels, DType dtype) {
    const Tensor qkv = noise(dtype, sizes.qkv(), 8), dy = noise(dtype, sizes.rows(), 9);
    const Attention forward = attention(kernels, sizes, qkv);
    return std::pair{forward.y, attention_gradient(kernels, sizes, qkv, forward.probabilities, dy)};
  };
  const auto [y, d_qkv] = both(*reference, DType::f64);
  for (const auto& kernels : all_kernels()) {
    const auto [found_y, found_d_qkv] = both(*kernels, DType::f32);
    // Sums of up to 128 terms below one that add up to less than about 8, with a rounding for each.
    require_close(found_y, in_double(y), tolerance(DType::f32, 128));
    require_close(found_d_qkv, in_double(d_qkv), tolerance(DType::f32, 128));
  }
}

TEST_CASE("a later position does not change an earlier one's output, nor a window that of another, bit for bit") {
  const Sizes sizes{3, 40, 2, 16};
  for (const auto& kernels : all_kernels()) {
    const Tensor qkv = noise(DType::f32, sizes.qkv(), 10);
    const Attention before = attention(*kernels, sizes, qkv);
    constexpr std::int64_t window = 1, position = 23;
    const std::int64_t changed = window * sizes.context + position;
    const auto row = qkv.view().slice(changed * 3 * sizes.width(), 3 * sizes.width());
    for (float& value : row.elements<float>()) value = 100 - value;
    const Attention after = attention(*kernels, sizes, qkv);
    for (std::int64_t i = 0; i < sizes.positions(); ++i) {
      const auto of = [&](const Attention& each) { return each.y.view().slice(i * sizes.width(), sizes.width()); };
      const bool sees_it = i / sizes.context == window && i >= changed;
      CHECK(same_bits(of(before), of(after)) == !sees_it);
    }
  }
}

TEST_CASE("the bits do not depend on where the operands lie in memory") {
  const Sizes sizes{2, 20, 2, 8};
  for (const auto& kernels : all_kernels()) {
    const Tensor qkv = noise(DType::f32, sizes.qkv(), 11), dy = noise(DType::f32, sizes.rows(), 12);
    const Attention forward = attention(*kernels, sizes, qkv);
    const Attention again = attention(*kernels, sizes, shifted(qkv));
    CHECK(same_bits(forward.y.view(), again.y.view()));
    CHECK(same_bits(
        attention_gradient(*kernels, sizes, qkv, forward.probabilities, dy).view(),
        attention_gradient(*kernels, sizes, shifted(qkv), shifted(forward.probabilities), shifted(dy)).view()));

    const Tensor gain = noise(DType::f32, {48}, 13);
    CHECK(same_bits(layer_norm(*kernels, qkv, gain, gain, 1e-5).y.view(),
                    layer_norm(*kernels, shifted(qkv), shifted(gain), shifted(gain), 1e-5).y.view()));

    const Tensor y = unset(DType::f32, sizes.qkv()), y_again = unset(DType::f32, sizes.qkv());
    kernels->sequence().gelu(qkv.view(), y.view());
    kernels->sequence().gelu(shifted(qkv).view(), y_again.view());
    CHECK(same_bits(y.view(), y_again.view()));
  }
}

TEST_CASE("sequences of no windows and rows of nothing are valid") {
  for (const auto& kernels : all_kernels()) {
    const Sizes none{0, 8, 2, 4};
    const Tensor qkv = Tensor::zeros(DType::f32, none.qkv());
    const Attention result = attention(*kernels, none, qkv);
    CHECK(attention_gradient(*kernels, none, qkv, result.probabilities, result.y).count() == 0);
    const Tensor empty = Tensor::zeros(DType::f32, {0, 3}), three = Tensor::zeros(DType::f32, {3});
    layer_norm(*kernels, empty, three, three, 1e-5);
    kernels->sequence().gelu(empty.view(), empty.view());
    kernels->sequence().gelu_gradient(empty.view(), empty.view(), empty.view());
    kernels->sequence().gather_rows(f32({1, 2, 3}, {1, 3}).view(), i32({}).view(), empty.view()).wait();
  }
}
