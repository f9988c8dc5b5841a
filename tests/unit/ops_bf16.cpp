// Kernels on bf16: what they make of the operands as f32, rounded once.
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "models/ops/image_kernels.hpp"
#include "models/ops/sequence_kernels.hpp"
#include "unit/ops_support.hpp"

using namespace lockstep;
using namespace lockstep::ops;

namespace {

Tensor as(DType dtype, const Tensor& tensor) {
  if (tensor.dtype() == dtype) return tensor;
  const Tensor made = Tensor::zeros(dtype, tensor.shape());
  make_kernels(Kernels::Choice::reference)->convert(tensor.view(), made.view());
  return made;
}

/// Makes operands of one precision.
class Operands {
 public:
  explicit Operands(DType activations) : activations_{activations} {}

  /// The same numbers in both precisions.
  Tensor activation(Shape shape, std::uint64_t seed) const {
    return as(activations_, as(DType::bf16, noise(DType::f32, std::move(shape), seed)));
  }
  Tensor sum(Shape shape, std::uint64_t seed) const { return noise(DType::f32, std::move(shape), seed); }

 private:
  DType activations_;
};

using Results = std::vector<Tensor>;
using Run = std::function<Results(const Kernels&, const Operands&)>;

enum class Rounding { once, in_another_order };

/// Two bf16 that are at most one apart, or sums that differ by little beside their terms.
bool nearly(double a, double b) {
  return std::abs(a - b) <= std::max(std::abs(a), std::abs(b)) * 0x1p-7 + 2e-5;
}

void check(const std::string& name, const Run& run, Rounding of_library = Rounding::once) {
  for (const auto& kernels : all_kernels()) {
    INFO(name << ", " << kernels->name());
    const Results narrow = run(*kernels, Operands{DType::bf16}), wide = run(*kernels, Operands{DType::f32});
    REQUIRE(narrow.size() == wide.size());
    for (std::size_t i = 0; i < narrow.size(); ++i) {
      INFO("result " << i);
      const Tensor expected = as(narrow[i].dtype(), wide[i]);
      if (kernels->name() == "reference" || of_library == Rounding::once) {
        CHECK(same_bits(narrow[i].view(), expected.view()));
        continue;
      }
      const auto found = in_double(as(DType::f32, narrow[i])), wanted = in_double(as(DType::f32, expected));
      std::size_t apart = 0;
      for (std::size_t element = 0; element < found.size(); ++element)
        apart += nearly(found[element], wanted[element]) ? 0 : 1;
      CHECK(apart == 0);
    }
  }
}

constexpr std::int64_t n = 37, m = 65, k = 48;  // n * m elements are more than one piece

constexpr auto as_is = Kernels::Transpose::no, transposed = Kernels::Transpose::yes;

Shape matrix(std::int64_t rows, std::int64_t columns, Kernels::Transpose transpose) {
  return transpose == transposed ? Shape{columns, rows} : Shape{rows, columns};
}

}  // namespace

TEST_CASE("converting rounds to nearest even, and back is exact") {
  std::vector<float> numbers{0.f,
                             -0.f,
                             1.f,
                             1.00390625f,
                             1.01171875f,
                             -1.00390626f,
                             3.4e38f,
                             1e-40f,
                             -1e-45f,
                             std::numeric_limits<float>::infinity(),
                             -std::numeric_limits<float>::infinity(),
                             std::numeric_limits<float>::quiet_NaN(),
                             std::bit_cast<float>(0x7f800001u)};
  for (int i = 0; i < 5000; ++i) numbers.push_back(std::bit_cast<float>(0x00f0'1234u * static_cast<std::uint32_t>(i)));
  const Tensor x = Tensor::from(numbers, {std::ssize(numbers)});
  const auto narrow = as(DType::bf16, x).to_vector<BFloat16>();
  for (std::size_t i = 0; i < numbers.size(); ++i) REQUIRE(narrow[i].bits == BFloat16{numbers[i]}.bits);
  CHECK(narrow[3].bits == 0x3f80);  // a tie goes to even
  CHECK(narrow[4].bits == 0x3f82);
  const auto wide = as(DType::f32, Tensor::from(narrow, {std::ssize(narrow)})).to_vector<float>();
  for (std::size_t i = 0; i < narrow.size(); ++i)
    REQUIRE(std::bit_cast<std::uint32_t>(wide[i]) == static_cast<std::uint32_t>(narrow[i].bits) << 16);
}

TEST_CASE("products of bf16") {
  for (const Kernels::Transpose a : {as_is, transposed})
    for (const Kernels::Transpose b : {as_is, transposed})
      for (const DType result : {DType::bf16, DType::f32})
        check(
            "matmul",
            [&](const Kernels& kernels, const Operands& of) {
              const Tensor c = as(result, of.sum({n, m}, 3));
              const Tensor x = of.activation(matrix(n, k, a), 1), y = of.activation(matrix(k, m, b), 2);
              // f32 operands have an f32 result, which `check` rounds.
              const Tensor room = x.dtype() == DType::bf16 ? c : of.sum({n, m}, 3);
              kernels.matmul(x.view(), a, y.view(), b, room.view());
              return Results{room};
            },
            Rounding::in_another_order);
  for (const Kernels::Activation activation : {Kernels::Activation::none, Kernels::Activation::relu})
    check(
        "linear",
        [&](const Kernels& kernels, const Operands& of) {
          const Tensor y = of.activation({n, m}, 4);
          kernels.linear(of.activation({n, k}, 1).view(), of.activation({k, m}, 2).view(), of.sum({m}, 3).view(),
                         activation, y.view());
          return Results{y};
        },
        Rounding::in_another_order);
  check(
      "sum_of_products",
      [](const Kernels& kernels, const Operands& of) {
        const Tensor a = of.activation({3 * n, k}, 1), b = of.activation({3 * n, m}, 2), c = of.sum({k, m}, 3);
        std::vector<Kernels::Factors> factors;
        for (const std::int64_t i : {0, 1, 2})
          factors.push_back(
              {a.view().slice(i * n * k, n * k).reshaped({n, k}), b.view().slice(i * n * m, n * m).reshaped({n, m})});
        kernels.sum_of_products(factors, c.view());
        return Results{c};
      },
      Rounding::in_another_order);
}

TEST_CASE("products of bf16 without terms") {
  for (const auto& kernels : all_kernels()) {
    const Tensor none = Tensor::zeros(DType::bf16, {2, 0}), c = filled(DType::f32, {2, 2}, 7);
    kernels->matmul(none.view(), as_is, none.view(), transposed, c.view());
    CHECK(in_double(c) == std::vector<double>(4, 0));
  }
}

TEST_CASE("element by element and row by row in bf16") {
  check("add_bias", [](const Kernels& kernels, const Operands& of) {
    const Tensor rows = of.activation({n, m}, 1);
    kernels.add_bias(rows.view(), of.sum({m}, 2).view());
    return Results{rows};
  });
  check("sum_rows", [](const Kernels& kernels, const Operands& of) {
    const Tensor out = of.sum({m}, 2);
    kernels.sum_rows(of.activation({n, m}, 1).view(), out.view());
    return Results{out};
  });
  check("relu, its gradient, and a sum", [](const Kernels& kernels, const Operands& of) {
    const Tensor y = of.activation({n, m}, 1), dx = of.activation({n, m}, 2), sum = of.activation({n, m}, 3);
    kernels.relu(y.view(), y.view());
    kernels.relu_gradient(y.view(), dx.view(), dx.view());
    kernels.add(sum.view(), dx.view());
    return Results{y, dx, sum};
  });
  check("multiply", [](const Kernels& kernels, const Operands& of) {
    const Tensor y = of.activation({n, m}, 1);
    kernels.image().multiply(y.view(), of.sum({n, m}, 2).view(), y.view());
    return Results{y};
  });
  check("softmax cross-entropy", [](const Kernels& kernels, const Operands& of) {
    const Tensor logits = of.activation({n, m}, 1), labels = Tensor::zeros(DType::i32, {n});
    for (std::int32_t i = 0; i < n; ++i) labels.view().elements<std::int32_t>()[static_cast<std::size_t>(i)] = i;
    const Kernels::BatchLoss alone = kernels.softmax_cross_entropy(logits.view(), labels.view(), n - 2);
    const Kernels::BatchLoss loss = kernels.softmax_cross_entropy(logits.view(), labels.view(), n - 2, logits.view());
    CHECK(alone.loss_sum == loss.loss_sum);
    return Results{logits, Tensor::from({loss.loss_sum, static_cast<double>(loss.correct)}, {2})};
  });
}

TEST_CASE("a NaN of bf16 goes through ReLU") {
  for (const auto& kernels : all_kernels()) {
    const Tensor x = as(DType::bf16, f32({std::nanf(""), -1, 2}, {1, 3}));
    kernels->relu(x.view(), x.view());
    const auto y = in_double(as(DType::f32, x));
    CHECK((std::isnan(y[0]) && y[1] == 0 && y[2] == 2));
    const Tensor weight = as(DType::bf16, f32({1, 1, 1}, {3, 1})), product = Tensor::zeros(DType::bf16, {1, 1});
    kernels->linear(x.view(), weight.view(), f32({0}, {1}).view(), Kernels::Activation::relu, product.view());
    CHECK(std::isnan(in_double(as(DType::f32, product))[0]));
  }
}

TEST_CASE("images in bf16") {
  check(
      "convolution",
      [](const Kernels& kernels, const Operands& of) {
        const Tensor x = of.activation({3, 9, 8, 5}, 1), weight = of.activation({3, 3, 5, 16}, 2);
        const Tensor y = of.activation({3, 7, 6, 16}, 3), dx = of.activation({3, 9, 8, 5}, 4);
        const Tensor d_weight = of.sum({3, 3, 5, 16}, 5), d_bias = of.sum({16}, 6),
                     dy = of.activation({3, 7, 6, 16}, 7);
        kernels.image().convolution(x.view(), weight.view(), of.sum({16}, 8).view(), Kernels::Activation::relu,
                                    y.view());
        kernels.image().convolution_gradients(x.view(), dy.view(), d_weight.view(), d_bias.view());
        kernels.image().convolution_input_gradient(dy.view(), weight.view(), dx.view());
        return Results{y, d_weight, d_bias, dx};
      },
      Rounding::in_another_order);
  check("pooling", [](const Kernels& kernels, const Operands& of) {
    const Tensor x = of.activation({3, 7, 6, 16}, 1), y = of.activation({3, 3, 3, 16}, 2);
    const Tensor dy = of.activation({3, 3, 3, 16}, 3);
    kernels.image().max_pool(x.view(), y.view());
    kernels.image().max_pool_gradient(x.view(), dy.view(), x.view());
    return Results{y, x};
  });
  check("batch norm", [](const Kernels& kernels, const Operands& of) {
    constexpr std::int64_t samples = 5, channels = 16;
    const Tensor x = of.activation({samples, 9, 8, channels}, 1), y = of.activation({samples, 9, 8, channels}, 2);
    const Tensor mean = of.sum({channels}, 3), variance = of.sum({channels}, 4);
    kernels.image().channel_means(x.view(), mean.view());
    kernels.image().channel_variances(x.view(), mean.view(), samples, variance.view());
    const Normalisation by{mean.view(), variance.view(), samples};
    const Tensor gamma = of.sum({channels}, 5), beta = of.sum({channels}, 6);
    kernels.image().batch_norm(x.view(), by, gamma.view(), beta.view(), y.view());
    const Tensor d_gamma = of.sum({channels}, 7), d_beta = of.sum({channels}, 8);
    const Tensor dy = of.activation(x.shape(), 9);
    kernels.image().batch_norm_gradients(x.view(), by, dy.view(), d_gamma.view(), d_beta.view());
    kernels.image().batch_norm_input_gradient(x.view(), by, gamma.view(), dy.view(), d_gamma.view(), d_beta.view(),
                                              dy.view());
    return Results{mean, variance, y, d_gamma, d_beta, dy};
  });
}

TEST_CASE("sequences in bf16") {
  check("rows by index", [](const Kernels& kernels, const Operands& of) {
    const Tensor indices = i32({3, 0, 3, 6}), rows = of.activation({4, m}, 1), sums = of.sum({7, m}, 2);
    kernels.sequence().gather_rows(of.activation({7, m}, 3).view(), indices.view(), rows.view()).wait();
    kernels.sequence().scatter_add_rows(rows.view(), indices.view(), sums.view());
    return Results{rows, sums};
  });
  for (const bool sums : {false, true})
    check(sums ? "layer norm of f32" : "layer norm", [&](const Kernels& kernels, const Operands& of) {
      const auto stream = [&](std::uint64_t seed) {
        return sums ? as(DType::f32, of.activation({n, m}, seed)) : of.activation({n, m}, seed);
      };
      const Tensor x = stream(1), y = of.activation({n, m}, 2), dx = stream(3), dy = of.activation({n, m}, 4);
      const Tensor gain = of.sum({m}, 5), moments = of.sum({n, 2}, 6), d_gain = of.sum({m}, 7), d_bias = of.sum({m}, 8);
      kernels.sequence().layer_norm({x.view(), gain.view(), of.sum({m}, 9).view(), 1e-5, y.view(), moments.view()});
      kernels.sequence().layer_norm_gradient(
          {x.view(), gain.view(), moments.view(), dy.view(), dx.view(), d_gain.view(), d_bias.view()});
      return Results{y, moments, dx, d_gain, d_bias};
    });
  check(
      "GELU",
      [](const Kernels& kernels, const Operands& of) {
        const Tensor x = of.activation({n, m}, 1), y = of.activation({n, m}, 2), dx = of.activation({n, m}, 3);
        kernels.sequence().gelu(x.view(), y.view());
        kernels.sequence().gelu_gradient(x.view(), dx.view(), dx.view());
        return Results{y, dx};
      },
      Rounding::in_another_order);
}

TEST_CASE("attention in bf16 is that of f32, but for the rounding of probabilities and scores") {
  constexpr std::int64_t windows = 2, heads = 2, context = 16, width = 24;
  for (const auto& kernels : all_kernels()) {
    INFO(kernels->name());
    const auto run = [&](const Operands& of) {
      const Tensor qkv = of.activation({windows * context, 3 * width}, 1);
      const Tensor probabilities = of.activation({windows, heads, context, context}, 2);
      const Tensor y = of.activation({windows * context, width}, 3), dy = of.activation({windows * context, width}, 4);
      const Tensor d_qkv = of.activation(qkv.shape(), 5), scratch = of.activation({heads, context, context}, 6);
      kernels->sequence().causal_attention({qkv.view(), probabilities.view(), y.view()});
      kernels->sequence().causal_attention_gradient(
          {qkv.view(), probabilities.view(), dy.view(), d_qkv.view(), scratch.view()});
      return Results{probabilities, y, d_qkv};
    };
    const Results narrow = run(Operands{DType::bf16}), wide = run(Operands{DType::f32});
    for (std::size_t i = 0; i < narrow.size(); ++i) {
      const auto found = in_double(as(DType::f32, narrow[i])), wanted = in_double(wide[i]);
      double largest = 0, error = 0;
      for (std::size_t element = 0; element < found.size(); ++element) {
        largest = std::max(largest, std::abs(wanted[element]));
        REQUIRE(std::isfinite(found[element]));
        error = std::max(error, std::abs(found[element] - wanted[element]));
      }
      CHECK(error < largest * 0x1p-6);  // three roundings of 2^-9 each, of terms that cancel in part
    }
  }
}

TEST_CASE("kernels refuse operands of the wrong precision") {
  const Tensor narrow = Tensor::zeros(DType::bf16, {2, 2}), wide = Tensor::zeros(DType::f32, {2, 2});
  const Tensor narrow_bias = Tensor::zeros(DType::bf16, {2}), bias = Tensor::zeros(DType::f32, {2});
  const Tensor other = Tensor::zeros(DType::f64, {2, 2});
  for (const auto& kernels : all_kernels()) {
    CHECK(refusal([&] { kernels->matmul(narrow.view(), as_is, wide.view(), as_is, wide.view()); }) ==
          "matmul: bf16[2, 2] and f32[2, 2] are not of one type");
    CHECK(refusal([&] { kernels->add_bias(narrow.view(), narrow_bias.view()); }) ==
          "add_bias: bf16[2] beside bf16[2, 2], expected f32");
    CHECK(refusal([&] {
            kernels->linear(narrow.view(), Tensor::zeros(DType::bf16, {2, 2}).view(), bias.view(),
                            Kernels::Activation::none, other.view());
          }) == "linear: f64[2, 2] beside bf16[2, 2], expected f32");
    CHECK(refusal([&] { kernels->convert(wide.view(), other.view()); }) ==
          "convert: f32[2, 2] to f64[2, 2], expected f32 and bf16 of one shape");
  }
}
