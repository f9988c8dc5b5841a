// The kernels of images against what their definitions say, written down once more with one index for each dimension.
// Operands are small integers wherever that can be: every sum of them is exact, in any order and in both types.
#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

#include <lockstep/core/base/error.hpp>
#include <lockstep/models/ops/kernels.hpp>

#include "core/base/element_count.hpp"
#include "models/ops/image_kernels.hpp"
#include "ops_support.hpp"

using namespace lockstep;
using namespace lockstep::ops;

namespace {

/// Whole numbers from -4 to 4.
Tensor integers(DType dtype, Shape shape, std::uint64_t seed) {
  const RandomStream stream{seed, RandomStream::Purpose::initial_value, 0};
  return generate(dtype, std::move(shape), [&](std::int64_t i) {
    return static_cast<double>(stream.below(9, static_cast<std::uint64_t>(i))) - 4;
  });
}

/// Elements by four indices.
class Grid {
 public:
  explicit Grid(const Tensor& tensor) : shape_{tensor.shape()}, values_{in_double(tensor)} {}
  explicit Grid(Shape shape) : shape_{std::move(shape)}, values_(static_cast<std::size_t>(element_count(shape_))) {}

  double& operator()(std::int64_t a, std::int64_t b, std::int64_t c, std::int64_t d) {
    return values_[static_cast<std::size_t>(((a * shape_[1] + b) * shape_[2] + c) * shape_[3] + d)];
  }
  const std::vector<double>& values() const { return values_; }

 private:
  Shape shape_;
  std::vector<double> values_;
};

struct Case {
  std::int64_t images, height, width, inputs, kernel_height, kernel_width, outputs;

  Shape x() const { return {images, height, width, inputs}; }
  Shape weight() const { return {kernel_height, kernel_width, inputs, outputs}; }
  Shape y() const { return {images, height - kernel_height + 1, width - kernel_width + 1, outputs}; }
  std::string text() const { return describe(x()) + " * " + describe(weight()); }
};

const std::vector<Case> cases{{1, 3, 3, 1, 3, 3, 1},  {2, 5, 4, 3, 3, 3, 2},   {3, 6, 7, 2, 1, 2, 5},
                              {1, 4, 4, 4, 4, 1, 3},  {4, 10, 9, 1, 3, 3, 32}, {3, 8, 8, 32, 3, 3, 64},
                              {5, 7, 7, 17, 5, 5, 19}};

/// Calls `body` with every term of a convolution: image, row and column of the result, row and column in the kernel,
/// input, output.
void for_each_term(const Case& c, const std::function<void(std::int64_t, std::int64_t, std::int64_t, std::int64_t,
                                                           std::int64_t, std::int64_t, std::int64_t)>& body) {
  for (std::int64_t o = 0; o < c.outputs; ++o)
    for (std::int64_t i = 0; i < c.inputs; ++i)
      for (std::int64_t n = 0; n < c.images; ++n)
        for (std::int64_t h = 0; h < c.y()[1]; ++h)
          for (std::int64_t w = 0; w < c.y()[2]; ++w)
            for (std::int64_t kh = 0; kh < c.kernel_height; ++kh)
              for (std::int64_t kw = 0; kw < c.kernel_width; ++kw) body(n, h, w, kh, kw, i, o);
}

constexpr DType image_types[]{DType::f32, DType::f64};

}  // namespace

TEST_CASE("a convolution is what its definition says, exactly, in every type and with every kernel") {
  for (const auto& kernels : all_kernels())
    for (const DType dtype : image_types)
      for (const Case& c : cases) {
        CAPTURE(kernels->name(), name_of(dtype), c.text());
        const Tensor x = integers(dtype, c.x(), 1), weight = integers(dtype, c.weight(), 2);
        const Tensor bias = integers(dtype, {c.outputs}, 3);
        Grid expected{c.y()}, of_x{x}, of_weight{weight};
        for_each_term(c, [&](auto n, auto h, auto w, auto kh, auto kw, auto i, auto o) {
          expected(n, h, w, o) += of_x(n, h + kh, w + kw, i) * of_weight(kh, kw, i, o);
        });
        std::vector<double> sums = expected.values();
        for (std::size_t i = 0; i < sums.size(); ++i)
          sums[i] += in_double(bias)[i % static_cast<std::size_t>(c.outputs)];

        const Tensor y = filled(dtype, c.y(), not_a_number);
        kernels->image().convolution(x.view(), weight.view(), bias.view(), Kernels::Activation::none, y.view());
        CHECK(in_double(y) == sums);
        for (double& sum : sums) sum = std::max(sum, 0.0);
        kernels->image().convolution(x.view(), weight.view(), bias.view(), Kernels::Activation::relu, y.view());
        CHECK(in_double(y) == sums);
      }
}

TEST_CASE("the gradients of a convolution are what its definition says, exactly") {
  for (const auto& kernels : all_kernels())
    for (const DType dtype : image_types)
      for (const Case& c : cases) {
        CAPTURE(kernels->name(), name_of(dtype), c.text());
        const Tensor x = integers(dtype, c.x(), 1), weight = integers(dtype, c.weight(), 2);
        const Tensor dy = integers(dtype, c.y(), 3);
        Grid of_x{x}, of_weight{weight}, of_dy{dy}, expected_weight{c.weight()}, expected_x{c.x()};
        for_each_term(c, [&](auto n, auto h, auto w, auto kh, auto kw, auto i, auto o) {
          expected_weight(kh, kw, i, o) += of_x(n, h + kh, w + kw, i) * of_dy(n, h, w, o);
          expected_x(n, h + kh, w + kw, i) += of_weight(kh, kw, i, o) * of_dy(n, h, w, o);
        });
        std::vector<double> expected_bias(static_cast<std::size_t>(c.outputs));
        for (std::size_t i = 0; i < of_dy.values().size(); ++i)
          expected_bias[i % expected_bias.size()] += of_dy.values()[i];

        const Tensor d_weight = filled(dtype, c.weight(), not_a_number);
        const Tensor d_bias = filled(dtype, {c.outputs}, not_a_number);
        kernels->image().convolution_gradients(x.view(), dy.view(), d_weight.view(), d_bias.view());
        CHECK(in_double(d_weight) == expected_weight.values());
        CHECK(in_double(d_bias) == expected_bias);
        const Tensor dx = filled(dtype, c.x(), not_a_number);
        kernels->image().convolution_input_gradient(dy.view(), weight.view(), dx.view());
        CHECK(in_double(dx) == expected_x.values());
      }
}

TEST_CASE("convolutions of f32 are as close to those of f64 as their sums are long") {
  const Case c{4, 14, 14, 32, 3, 3, 64};
  const Tensor x = noise(DType::f64, c.x(), 1), weight = noise(DType::f64, c.weight(), 2);
  const Tensor bias = noise(DType::f64, {c.outputs}, 3), dy = noise(DType::f64, c.y(), 4);
  const auto narrow = [](const Tensor& wide) {
    const auto values = in_double(wide);
    return generate(DType::f32, wide.shape(), [&](std::int64_t i) { return values[static_cast<std::size_t>(i)]; });
  };
  // noise is a multiple of 2^-23, so it is the same in f32. Products of it have a variance of 1/9: of n of them no
  // partial sum gets beyond three standard deviations, sqrt(n), by much, and each is rounded to 2^-24.
  const auto close = [](const Tensor& found, const Tensor& truth, std::int64_t terms) {
    const auto a = in_double(found), b = in_double(truth);
    double worst = 0;
    for (std::size_t i = 0; i < a.size(); ++i) worst = std::max(worst, std::abs(a[i] - b[i]));
    CHECK(worst < static_cast<double>(terms) * std::sqrt(terms) * 0x1p-24);
    CHECK(worst > 0);
  };
  struct Results {
    Tensor y, d_weight, d_bias, dx;
  };
  const auto compute = [&](const Kernels& k, DType dtype, auto&& as) {
    Results r{Tensor::zeros(dtype, c.y()), Tensor::zeros(dtype, c.weight()), Tensor::zeros(dtype, {c.outputs}),
              Tensor::zeros(dtype, c.x())};
    k.image().convolution(as(x).view(), as(weight).view(), as(bias).view(), Kernels::Activation::none, r.y.view());
    k.image().convolution_gradients(as(x).view(), as(dy).view(), r.d_weight.view(), r.d_bias.view());
    k.image().convolution_input_gradient(as(dy).view(), as(weight).view(), r.dx.view());
    return r;
  };
  const Results truth =
      compute(*make_kernels(Kernels::Choice::reference), DType::f64, [](const Tensor& wide) { return wide; });
  for (const auto& kernels : all_kernels()) {
    CAPTURE(kernels->name());
    const Results found = compute(*kernels, DType::f32, narrow);
    close(found.y, truth.y, 9 * c.inputs);
    close(found.d_weight, truth.d_weight, 4 * 12 * 12);
    close(found.d_bias, truth.d_bias, 4 * 12 * 12);
    close(found.dx, truth.dx, 9 * c.outputs);
  }
}

TEST_CASE("the bits of a convolution depend on values and shape alone, not on place or past") {
  const Case c{3, 9, 9, 32, 3, 3, 64};
  for (const auto& kernels : all_kernels()) {
    CAPTURE(kernels->name());
    const auto compute = [&](std::int64_t offset) {
      // In memory that begins at an odd place of its allocation.
      std::vector<Tensor> memory;
      const auto place = [&](const Tensor& value) {
        memory.push_back(Tensor::zeros(DType::f32, {value.count() + offset}));
        const TensorView view = memory.back().view().slice(offset, value.count()).reshaped(value.shape());
        copy(value.view(), view);
        return view;
      };
      const auto x = place(noise(DType::f32, c.x(), 1)), weight = place(noise(DType::f32, c.weight(), 2));
      const auto bias = place(noise(DType::f32, {c.outputs}, 3)), dy = place(noise(DType::f32, c.y(), 4));
      const auto y = place(filled(DType::f32, c.y(), 7)), dx = place(filled(DType::f32, c.x(), 7));
      const auto d_weight = place(filled(DType::f32, c.weight(), 7)),
                 d_bias = place(filled(DType::f32, {c.outputs}, 7));
      kernels->image().convolution(x, weight, bias, Kernels::Activation::relu, y);
      kernels->image().convolution_gradients(x, dy, d_weight, d_bias);
      kernels->image().convolution_input_gradient(dy, weight, dx);
      std::vector<float> all;
      for (const TensorView& view : {y, d_weight, d_bias, dx})
        for (const float value : view.to_vector<float>()) all.push_back(value);
      return all;
    };
    const auto first = compute(0);
    for (const std::int64_t offset : {1, 3, 0}) CHECK(compute(offset) == first);
  }
}

TEST_CASE("threads may compute convolutions of one shape at the same time") {
  const Case c{2, 8, 8, 16, 3, 3, 32};
  const Tensor weight = noise(DType::f32, c.weight(), 2), bias = noise(DType::f32, {c.outputs}, 3);
  for (const auto& kernels : all_kernels()) {
    CAPTURE(kernels->name());
    // y and dx of a seed of its own, several times over.
    const auto compute = [&](std::uint64_t seed, int times) {
      const Tensor x = noise(DType::f32, c.x(), seed), y = Tensor::zeros(DType::f32, c.y());
      const Tensor dx = Tensor::zeros(DType::f32, c.x());
      for (int i = 0; i < times; ++i) {
        kernels->image().convolution(x.view(), weight.view(), bias.view(), Kernels::Activation::none, y.view());
        kernels->image().convolution_input_gradient(y.view(), weight.view(), dx.view());
      }
      return dx.to_vector<float>();
    };
    std::vector<std::vector<float>> found(4);
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < found.size(); ++i) threads.emplace_back([&, i] { found[i] = compute(100 + i, 20); });
    for (std::thread& thread : threads) thread.join();
    for (std::size_t i = 0; i < found.size(); ++i) CHECK(found[i] == compute(100 + i, 1));
  }
}

TEST_CASE("images whose gradient is zero add nothing to those of a convolution's weights") {
  const Case two{2, 6, 6, 3, 3, 3, 4}, three{3, 6, 6, 3, 3, 3, 4};
  for (const auto& kernels : all_kernels())
    for (const DType dtype : image_types) {
      CAPTURE(kernels->name(), name_of(dtype));
      const Tensor x = integers(dtype, three.x(), 1), dy = integers(dtype, three.y(), 2);
      dy.view().slice(element_count(two.y()), dy.count() - element_count(two.y())).fill_zero();
      const auto first = [](const Tensor& tensor, const Shape& shape) {
        return tensor.view().slice(0, element_count(shape)).reshaped(shape);
      };
      const auto gradients = [&](const TensorView& of_x, const TensorView& of_dy) {
        const Tensor d_weight = Tensor::zeros(dtype, two.weight()), d_bias = Tensor::zeros(dtype, {two.outputs});
        kernels->image().convolution_gradients(of_x, of_dy, d_weight.view(), d_bias.view());
        return std::pair{in_double(d_weight), in_double(d_bias)};
      };
      CHECK(gradients(x.view(), dy.view()) == gradients(first(x, two.x()), first(dy, two.y())));
    }
}

TEST_CASE("a convolution without images, inputs or outputs is nothing, or its bias") {
  for (const auto& kernels : all_kernels())
    for (const DType dtype : image_types) {
      CAPTURE(kernels->name(), name_of(dtype));
      const auto compute = [&](const Case& c) {
        const Tensor x = Tensor::zeros(dtype, c.x()), weight = Tensor::zeros(dtype, c.weight());
        const Tensor bias = filled(dtype, {c.outputs}, 3), y = filled(dtype, c.y(), not_a_number);
        kernels->image().convolution(x.view(), weight.view(), bias.view(), Kernels::Activation::relu, y.view());
        CHECK(in_double(y) == std::vector<double>(static_cast<std::size_t>(y.count()), 3));
        const Tensor d_weight = filled(dtype, c.weight(), not_a_number), d_bias = filled(dtype, {c.outputs}, 9);
        const Tensor dx = filled(dtype, c.x(), not_a_number);
        kernels->image().convolution_gradients(x.view(), y.view(), d_weight.view(), d_bias.view());
        kernels->image().convolution_input_gradient(y.view(), weight.view(), dx.view());
        for (const Tensor* gradient : {&d_weight, &dx})
          CHECK(in_double(*gradient) == std::vector<double>(static_cast<std::size_t>(gradient->count()), 0));
        CHECK(in_double(d_bias) == std::vector<double>(static_cast<std::size_t>(c.outputs),
                                                       3 * static_cast<double>(c.images * c.y()[1] * c.y()[2])));
      };
      compute({0, 4, 4, 2, 3, 3, 5});
      compute({2, 4, 4, 0, 3, 3, 5});
      compute({2, 4, 4, 2, 3, 3, 0});
    }
}

TEST_CASE("a NaN or an infinity in an image reaches every position that sees it, through the activation") {
  const Case c{1, 8, 8, 2, 3, 3, 33};
  for (const auto& kernels : all_kernels())
    for (const double value : {not_a_number, infinity}) {
      CAPTURE(kernels->name(), value);
      const Tensor x = filled(DType::f32, c.x(), 0.5);
      x.view().elements<float>()[static_cast<std::size_t>((4 * c.width + 4) * c.inputs)] = static_cast<float>(value);
      const Tensor y = Tensor::zeros(DType::f32, c.y());
      kernels->image().convolution(x.view(), filled(DType::f32, c.weight(), 1).view(),
                                   filled(DType::f32, {c.outputs}, 0).view(), Kernels::Activation::relu, y.view());
      Grid found{y};
      for (std::int64_t h = 0; h < 6; ++h)
        for (std::int64_t w = 0; w < 6; ++w)
          for (std::int64_t o = 0; o < c.outputs; ++o)
            CHECK(std::isfinite(found(0, h, w, o)) == !(h >= 2 && h <= 4 && w >= 2 && w <= 4));
    }
}

TEST_CASE("max-pooling takes the largest of four, and gives its gradient to the first of them") {
  for (const auto& kernels : all_kernels())
    for (const DType dtype : image_types)
      for (const Shape& shape : {Shape{2, 4, 6, 3}, Shape{1, 5, 7, 16}, Shape{3, 2, 3, 1}, Shape{2, 1, 4, 2}}) {
        CAPTURE(kernels->name(), name_of(dtype), describe(shape));
        const Shape pooled{shape[0], shape[1] / 2, shape[2] / 2, shape[3]};
        const Tensor x = integers(dtype, shape, 1), dy = integers(dtype, pooled, 2);  // with many equal values
        Grid of_x{x}, of_dy{dy}, expected_y{pooled}, expected_dx{shape};
        for (std::int64_t n = 0; n < pooled[0]; ++n)
          for (std::int64_t h = 0; h < pooled[1]; ++h)
            for (std::int64_t w = 0; w < pooled[2]; ++w)
              for (std::int64_t c = 0; c < pooled[3]; ++c) {
                const std::pair<std::int64_t, std::int64_t> places[]{
                    {2 * h, 2 * w}, {2 * h, 2 * w + 1}, {2 * h + 1, 2 * w}, {2 * h + 1, 2 * w + 1}};
                const auto first = std::ranges::max_element(
                    places, {}, [&](const auto& place) { return of_x(n, place.first, place.second, c); });
                expected_y(n, h, w, c) = of_x(n, first->first, first->second, c);
                expected_dx(n, first->first, first->second, c) = of_dy(n, h, w, c);
              }
        const Tensor y = filled(dtype, pooled, not_a_number), dx = filled(dtype, shape, not_a_number);
        kernels->image().max_pool(x.view(), y.view());
        CHECK(in_double(y) == expected_y.values());
        kernels->image().max_pool_gradient(x.view(), dy.view(), dx.view());
        CHECK(in_double(dx) == expected_dx.values());
        kernels->image().max_pool_gradient(x.view(), dy.view(), x.view());
        CHECK(in_double(x) == expected_dx.values());
      }
}

TEST_CASE("max-pooling lets a NaN through, and an infinity, and keeps the gradient") {
  const float nan = static_cast<float>(not_a_number), inf = static_cast<float>(infinity);
  const Shape shape{1, 2, 2, 1}, one{1, 1, 1, 1};
  for (const auto& kernels : all_kernels())
    for (std::size_t place = 0; place < 4; ++place) {
      CAPTURE(kernels->name(), place);
      const auto pool = [&](const Tensor& x) {
        const Tensor y = f32({0}, one);
        kernels->image().max_pool(x.view(), y.view());
        return y.to_vector<float>()[0];
      };
      const auto gradient = [&](const Tensor& x) {
        const Tensor dx = f32({9, 9, 9, 9}, shape);
        kernels->image().max_pool_gradient(x.view(), f32({7}, one).view(), dx.view());
        return dx.to_vector<float>();
      };
      const Tensor x = f32({5, 5, inf, 5}, shape);
      x.view().elements<float>()[place] = nan;
      CHECK(std::isnan(pool(x)));
      CHECK(gradient(x) == std::vector<float>{7, 0, 0, 0});
      x.view().elements<float>()[2] = 5;
      x.view().elements<float>()[place] = inf;
      CHECK(pool(x) == inf);
      std::vector<float> expected(4);
      expected[place] = 7;
      CHECK(gradient(x) == expected);
      for (float& element : x.view().elements<float>()) element = -inf;
      CHECK(pool(x) == -inf);
      CHECK(gradient(x) == std::vector<float>{7, 0, 0, 0});
    }
}

TEST_CASE("the image kernels refuse operands that do not fit, and write nothing") {
  const Tensor x = noise(DType::f32, {2, 5, 4, 3}, 1), weight = noise(DType::f32, {3, 2, 3, 6}, 2);
  const Tensor bias = noise(DType::f32, {6}, 3), y = noise(DType::f32, {2, 3, 3, 6}, 4);
  const Tensor before = Tensor::copy_of(y.view());
  const Tensor wide = Tensor::zeros(DType::f64, {2, 3, 3, 6});
  for (const auto& kernels : all_kernels()) {
    const auto refused = [&](const TensorView& a, const TensorView& b, const TensorView& c, const TensorView& d,
                             const std::string& message) {
      CHECK_THROWS_AS(kernels->image().convolution(a, b, c, Kernels::Activation::none, d), InvalidArgument);
      CHECK_THROWS_WITH(kernels->image().convolution(a, b, c, Kernels::Activation::none, d), "convolution: " + message);
    };
    refused(x.view(), weight.view(), bias.view(), wide.view(),
            "f32[2, 5, 4, 3] and f64[2, 3, 3, 6] are not of one type");
    refused(x.view(), weight.view(), bias.view(), y.view().reshaped({2, 9, 6}),
            "expected four dimensions, not f32[2, 9, 6]");
    refused(x.view(), weight.view().reshaped({3, 3, 2, 6}), bias.view(), y.view(),
            "f32[3, 3, 2, 6] is no kernel for f32[2, 5, 4, 3], expected [1 to 5, 1 to 4, 3, outputs]");
    refused(x.view(), weight.view().reshaped({6, 1, 3, 6}), bias.view(), y.view(),
            "f32[6, 1, 3, 6] is no kernel for f32[2, 5, 4, 3], expected [1 to 5, 1 to 4, 3, outputs]");
    refused(x.view(), weight.view().slice(0, 0).reshaped({0, 2, 3, 6}), bias.view(), y.view(),
            "f32[0, 2, 3, 6] is no kernel for f32[2, 5, 4, 3], expected [1 to 5, 1 to 4, 3, outputs]");
    refused(x.view(), weight.view(), bias.view(), y.view().reshaped({3, 2, 3, 6}),
            "f32[2, 5, 4, 3] under the kernel f32[3, 2, 3, 6] does not give f32[3, 2, 3, 6]");
    refused(x.view(), weight.view(), bias.view().slice(0, 5), y.view(),
            "f32[5] does not fit the channels of f32[2, 3, 3, 6], expected [6]");
    refused(x.view(), weight.view(), y.view().slice(3, 6), y.view(), "f32[6] and f32[2, 3, 3, 6] overlap in memory");
    refused(x.view(), weight.view(), bias.view(), TensorView{nullptr, {2, 3, 3, 6}, DType::f32, DeviceKind::cuda},
            "f32[2, 3, 3, 6] is in the memory of a cuda device, expected the host's");

    CHECK_THROWS_WITH(
        kernels->image().convolution_gradients(x.view(), y.view(), weight.view(), bias.view().slice(0, 5)),
        "convolution_gradients: f32[5] does not fit the channels of f32[2, 3, 3, 6], expected [6]");
    CHECK_THROWS_WITH(kernels->image().convolution_gradients(x.view(), y.view(), weight.view(), y.view().slice(0, 6)),
                      "convolution_gradients: f32[2, 3, 3, 6] and f32[6] overlap in memory");
    CHECK_THROWS_WITH(
        kernels->image().convolution_input_gradient(x.view(), weight.view(), y.view()),
        "convolution_input_gradient: f32[3, 2, 3, 6] is no kernel for f32[2, 3, 3, 6], expected [1 to 3, 1 "
        "to 3, 6, outputs]");
    CHECK_THROWS_WITH(kernels->image().max_pool(x.view(), y.view()),
                      "max_pool: f32[2, 5, 4, 3] does not pool to f32[2, 3, 3, 6], expected [2, 2, 2, 3]");
    CHECK_THROWS_WITH(kernels->image().max_pool(x.view(), x.view().slice(0, 24).reshaped({2, 2, 2, 3})),
                      "max_pool: f32[2, 5, 4, 3] and f32[2, 2, 2, 3] overlap in memory");
    CHECK_THROWS_WITH(
        kernels->image().max_pool_gradient(x.view(), y.view().slice(0, 24).reshaped({2, 2, 2, 3}), y.view()),
        "max_pool_gradient: f32[2, 5, 4, 3] and f32[2, 3, 3, 6] are not of one shape");
  }
  CHECK(same_bits(y.view(), before.view()));
}
