// Kernels for images on a GPU against the reference. Whole numbers make sums exact, whatever their order.
#include <algorithm>

#include "core/base/element_count.hpp"
#include "gpu_support.hpp"
#include "models/ops/checks.hpp"
#include "models/ops/cuda/image_kernels.hpp"
#include "models/ops/image_kernels.hpp"

using namespace lockstep;
using namespace lockstep::test;
using ops::sum_type;

namespace {

constexpr DType image_types[] = {DType::f32, DType::f64, DType::bf16};

struct Convolution {
  std::int64_t images, height, width, inputs, kernel_height, kernel_width, outputs;

  Shape x() const { return {images, height, width, inputs}; }
  Shape weight() const { return {kernel_height, kernel_width, inputs, outputs}; }
  Shape y() const { return {images, height - kernel_height + 1, width - kernel_width + 1, outputs}; }
};

/// Kernels as large as the image, of one position, and not square; nothing to read, to add up or to write; more patches
/// and more images than a grid takes in one stride.
std::vector<Convolution> convolutions() {
  return {{1, 3, 3, 1, 3, 3, 1}, {2, 5, 4, 3, 3, 3, 2},
          {3, 6, 7, 2, 1, 2, 5}, {1, 4, 4, 4, 4, 1, 3},
          {2, 3, 5, 7, 1, 1, 4}, {9, 7, 6, 3, 3, 3, 33},
          {0, 4, 4, 2, 3, 3, 5}, {2, 4, 4, 0, 3, 3, 5},
          {2, 4, 4, 2, 3, 3, 0}, {most_blocks() * 256 / 192 + 2, 8, 8, 3, 3, 3, 2}};
}

void convolve(const ops::ImageKernels& kernels, Activation activation, const Views& v) {
  kernels.convolution(v[0], v[1], v[2], activation, v[3]);
}

/// x, weight, bias and y.
Operands forward_operands(DType dtype, const Convolution& c) {
  // A quarter between two whole numbers: whoever rounds to bf16 before adding it gets another sum.
  const Tensor bias =
      generate(sum_type(dtype), {c.outputs}, [](std::int64_t i) { return static_cast<double>(i % 9) / 4 - 1; });
  return {whole_numbers(dtype, c.x(), 1), whole_numbers(dtype, c.weight(), 2), bias,
          filled(dtype, c.y(), not_a_number)};
}

/// x, dy, d_weight and d_bias.
Operands gradient_operands(DType dtype, const Convolution& c) {
  return {whole_numbers(dtype, c.x(), 1), whole_numbers(dtype, c.y(), 2),
          filled(sum_type(dtype), c.weight(), not_a_number), filled(sum_type(dtype), {c.outputs}, not_a_number)};
}

/// dy, weight and dx.
Operands input_gradient_operands(DType dtype, const Convolution& c) {
  return {whole_numbers(dtype, c.y(), 1), whole_numbers(dtype, c.weight(), 2), filled(dtype, c.x(), not_a_number)};
}

/// All three against the reference. `image_of` says whose kernels those of `kernels` are.
template <class ImageOf>
void check_convolution(DType dtype, const Convolution& c, ImageOf&& image_of) {
  CAPTURE(name_of(dtype), describe(c.x()), describe(c.weight()));
  for (const Activation activation : {Activation::none, Activation::relu})
    check_like_reference(forward_operands(dtype, c), exactly,
                         [&](const Kernels& kernels, const Views& v) { convolve(image_of(kernels), activation, v); });
  check_like_reference(gradient_operands(dtype, c), exactly, [&](const Kernels& kernels, const Views& v) {
    image_of(kernels).convolution_gradients(v[0], v[1], v[2], v[3]);
  });
  check_like_reference(input_gradient_operands(dtype, c), exactly, [&](const Kernels& kernels, const Views& v) {
    image_of(kernels).convolution_input_gradient(v[0], v[1], v[2]);
  });
}

const auto own_images = [](const Kernels& kernels) -> const ops::ImageKernels& { return kernels.image(); };

/// Images of even and odd extents, of one row or column, without images or channels, and more windows than a grid takes
/// in one stride.
std::vector<Shape> pooled_shapes() {
  return {{1, 2, 2, 1}, {2, 4, 6, 3}, {1, 5, 7, 16}, {3, 2, 3, 1}, {2, 1, 4, 2},
          {2, 3, 1, 5}, {0, 4, 4, 2}, {2, 4, 4, 0},  {2, 1, 1, 3}, {most_blocks() * 256 / 6 + 3, 5, 4, 1}};
}

/// Of few values, and sometimes NaN or infinite.
Tensor for_pooling(DType dtype, const Shape& shape) {
  const auto values = ops::in_double(whole_numbers(DType::f32, shape, 1));
  return generate(dtype, shape, [&](std::int64_t i) {
    const double value = values[static_cast<std::size_t>(i)];
    return i % 23 == 5 ? not_a_number : i % 29 == 7 ? -ops::infinity : std::floor(value / 4);
  });
}

/// [samples, positions, channels] around a warp of channels, and around the eight rows and the 256 that sums over them
/// are cut into; none; and more of both than a grid takes in one stride.
std::vector<Shape> channel_shapes() {
  return {{1, 1, 1},  {7, 31},
          {2, 4, 32}, {3, 3, 33},
          {5, 51, 2}, {4, 64, 3},
          {257, 1},   {19, 27, 5},
          {0, 4, 3},  {3, 0, 2},
          {3, 2, 0},  {3, most_blocks() * 32 + 5},
          {1, 9, 66}, {most_blocks() * 256 + 9, 1}};
}

/// A mean and a variance of each channel, times `samples`, and two more vectors.
struct Channels {
  std::int64_t samples;
  Tensor mean, variance, gamma, beta;

  Channels(DType dtype, std::int64_t channels, std::int64_t of_samples)
      : samples{of_samples},
        mean{generate(sum_type(dtype), {channels},
                      [=](std::int64_t i) { return static_cast<double>((i % 5 - 2) * of_samples); })},
        variance{generate(sum_type(dtype), {channels},
                          [=](std::int64_t i) { return static_cast<double>((1 + i % 7) * of_samples); })},
        gamma{noise(sum_type(dtype), {channels}, 5)},
        beta{noise(sum_type(dtype), {channels}, 6)} {}

  ops::Normalisation by(const TensorView& own_mean, const TensorView& own_variance) const {
    return {.mean = own_mean, .variance = own_variance, .samples = samples, .epsilon = 0.125};
  }
};

}  // namespace

TEST_CASE("convolutions on a GPU and their gradients are the host's, to the bit") {
  for (const DType dtype : image_types)
    for (const Convolution& c : convolutions()) check_convolution(dtype, c, own_images);
}

TEST_CASE("convolutions, pooling and batch norm on a GPU are the host's for an image of 3 x 224 x 224", "[large]") {
  const Shape shape{1, 224, 224, 3};
  check_convolution(DType::f32, {1, 224, 224, 3, 3, 3, 8}, own_images);
  const Tensor x = for_pooling(DType::f32, shape);
  check_like_reference({x, filled(DType::f32, {1, 112, 112, 3}, 9)}, exactly,
                       [](const Kernels& kernels, const Views& v) { kernels.image().max_pool(v[0], v[1]); });
  check_like_reference(
      {x, noise(DType::f32, {1, 112, 112, 3}, 2), filled(DType::f32, shape, 9)}, exactly,
      [](const Kernels& kernels, const Views& v) { kernels.image().max_pool_gradient(v[0], v[1], v[2]); });
  const Channels some{DType::f32, 3, 1};
  check_like_reference({whole_numbers(DType::f32, shape, 1), some.mean, some.variance, some.gamma, some.beta,
                        filled(DType::f32, shape, 9), filled(DType::f32, {3}, 9)},
                       exactly, [&](const Kernels& kernels, const Views& v) {
                         kernels.image().batch_norm(v[0], some.by(v[1], v[2]), v[3], v[4], v[5]);
                         kernels.image().channel_variances(v[0], v[1], 1, v[6]);
                       });
}

TEST_CASE("convolutions on a GPU whose patches do not fit into memory at once are the same") {
  // Of eight images at least: eight, eight and three.
  const ops::cuda::CudaImageKernels few{gpu().stream, gpu().kernels, 1};
  const auto image_of = [&](const Kernels& kernels) -> const ops::ImageKernels& {
    return &kernels == &gpu().kernels ? few : kernels.image();
  };
  for (const DType dtype : image_types) check_convolution(dtype, {19, 4, 5, 3, 3, 2, 5}, image_of);
}

TEST_CASE("a convolution on a GPU is the same with any memory for its patches") {
  // Six rows of patches of 8 numbers are an image's: 192 bytes of f32.
  const Convolution c{20, 3, 4, 2, 2, 2, 3};
  const Operands operands = forward_operands(DType::f32, c);
  const auto digest_with = [&](std::size_t bytes) {
    const ops::cuda::CudaImageKernels kernels{gpu().stream, gpu().kernels, bytes};
    return ops::in_double(
        after_cuda(operands, [&](const Kernels&, const Views& v) { convolve(kernels, Activation::none, v); })[3]);
  };
  for (const std::size_t images : {8, 16, 17, 24, 100}) CHECK(digest_with(images * 192) == digest_with(1));
}

TEST_CASE("convolutions on a GPU repeat their bits, wherever their operands lie") {
  for (const DType dtype : image_types) {
    const Convolution c{10, 7, 6, 5, 3, 3, 9};
    const Tensor x = noise(dtype, c.x(), 1), weight = noise(dtype, c.weight(), 2), dy = noise(dtype, c.y(), 3);
    check_repeats({x, weight, noise(sum_type(dtype), {c.outputs}, 4), dy},
                  [](const Kernels& kernels, const Views& v) { convolve(kernels.image(), Activation::relu, v); });
    check_repeats(
        {x, dy, filled(sum_type(dtype), c.weight(), 0), filled(sum_type(dtype), {c.outputs}, 0)},
        [](const Kernels& kernels, const Views& v) { kernels.image().convolution_gradients(v[0], v[1], v[2], v[3]); });
    check_repeats({dy, weight, x}, [](const Kernels& kernels, const Views& v) {
      kernels.image().convolution_input_gradient(v[0], v[1], v[2]);
    });
  }
}

TEST_CASE("convolutions on a GPU are as close to the host's as their sums are long") {
  const Convolution c{9, 6, 7, 5, 3, 3, 4};
  for (const DType dtype : float_types) {
    const Tensor x = noise(dtype, c.x(), 1), weight = noise(dtype, c.weight(), 2), dy = noise(dtype, c.y(), 3);
    check_like_reference(
        {x, weight, noise(dtype, {c.outputs}, 4), dy}, rounding_of_products(dtype, 9 * c.inputs),
        [](const Kernels& kernels, const Views& v) { convolve(kernels.image(), Activation::none, v); });
    // As many terms as there are positions in all images.
    check_like_reference(
        {x, dy, filled(dtype, c.weight(), 0), filled(dtype, {c.outputs}, 0)}, rounding_of_products(dtype, 9 * 4 * 5),
        [](const Kernels& kernels, const Views& v) { kernels.image().convolution_gradients(v[0], v[1], v[2], v[3]); });
    check_like_reference(
        {dy, weight, x}, rounding_of_products(dtype, 9 * c.outputs),
        [](const Kernels& kernels, const Views& v) { kernels.image().convolution_input_gradient(v[0], v[1], v[2]); });
  }
}

TEST_CASE("a NaN or an infinity in an image passes through a convolution on a GPU, and through its activation") {
  const Convolution c{1, 5, 6, 2, 3, 3, 4};
  for (const DType dtype : image_types)
    for (const double value : {not_a_number, ops::infinity}) {
      Operands operands = forward_operands(dtype, c);
      operands[0] = generate(dtype, c.x(), [&](std::int64_t i) { return i == 33 ? value : 1.; });
      operands[1] = filled(dtype, c.weight(), 1);
      check_like_reference(operands, exactly, [](const Kernels& kernels, const Views& v) {
        convolve(kernels.image(), Activation::relu, v);
      });
    }
}

TEST_CASE("max-pooling on a GPU and its gradient have the host's bits, in place too") {
  for (const DType dtype : image_types)
    for (const Shape& shape : pooled_shapes()) {
      CAPTURE(name_of(dtype), describe(shape));
      const Shape pooled{shape[0], shape[1] / 2, shape[2] / 2, shape[3]};
      const Tensor x = for_pooling(dtype, shape);
      check_like_reference({x, filled(dtype, pooled, 9)}, exactly,
                           [](const Kernels& kernels, const Views& v) { kernels.image().max_pool(v[0], v[1]); });
      for (const std::size_t to : {2, 0})
        check_like_reference(
            {x, noise(dtype, pooled, 2), filled(dtype, shape, 9)}, exactly,
            [to](const Kernels& kernels, const Views& v) { kernels.image().max_pool_gradient(v[0], v[1], v[to]); });
    }
}

TEST_CASE("sums over the rows of channels on a GPU are the host's, to the bit where they are exact") {
  for (const DType dtype : image_types)
    for (const Shape& shape : channel_shapes()) {
      CAPTURE(name_of(dtype), describe(shape));
      const std::int64_t channels = shape.back(), samples = std::max<std::int64_t>(shape.front(), 1);
      const Channels some{dtype, channels, samples};
      const Tensor sum = filled(sum_type(dtype), {channels}, 9);
      const auto check = [&](const Tensor& x, const Tensor& dy, double tolerance) {
        check_like_reference({x, sum}, tolerance,
                             [](const Kernels& kernels, const Views& v) { kernels.image().channel_means(v[0], v[1]); });
        check_like_reference({x, some.mean, sum}, tolerance, [&](const Kernels& kernels, const Views& v) {
          kernels.image().channel_variances(v[0], v[1], samples, v[2]);
        });
        check_like_reference({x, some.mean, some.variance, dy, sum, sum}, tolerance,
                             [&](const Kernels& kernels, const Views& v) {
                               kernels.image().batch_norm_gradients(v[0], some.by(v[1], v[2]), v[3], v[4], v[5]);
                             });
      };
      check(whole_numbers(dtype, shape, 1), whole_numbers(dtype, shape, 2), exactly);
      // Distances are below 4, and so are the terms below 16. The host adds them up one after the other, and the GPU in
      // lanes of 32 rows, eight lanes to a piece; both in double, and then the sum is rounded.
      const auto rows =
          static_cast<double>(std::max<std::int64_t>(sum.count() ? element_count(shape) / channels : 0, 1));
      check(noise(dtype, shape, 3), noise(dtype, shape, 4),
            rounding_of_sums(DType::f64, rows + 32 + 3 + rows / 256 / 8 + 1 + 3, 16 * rows) +
                epsilon(sum_type(dtype)) * 16 * rows);
    }
}

TEST_CASE("sums over the rows of channels on a GPU have enough memory of kernels that have done nothing else") {
  const Operands operands{whole_numbers(DType::f32, {300, 70}, 1), filled(DType::f32, {70}, 9)};
  const ops::cuda::CudaImageKernels fresh{gpu().stream, gpu().kernels};
  const Operands got = after_cuda(operands, [&](const Kernels&, const Views& v) { fresh.channel_means(v[0], v[1]); });
  const Operands expected = after_reference(
      operands, [](const Kernels& kernels, const Views& v) { kernels.image().channel_means(v[0], v[1]); });
  CHECK(ops::in_double(got[1]) == ops::in_double(expected[1]));
}

TEST_CASE("batch norm on a GPU and its gradient have the host's bits, in place of dy too") {
  for (const DType dtype : image_types)
    for (const Shape& shape : channel_shapes()) {
      CAPTURE(name_of(dtype), describe(shape));
      const std::int64_t channels = shape.back();
      const Channels some{dtype, channels, 3};
      const Tensor x = noise(dtype, shape, 1);
      check_like_reference({x, some.mean, some.variance, some.gamma, some.beta, filled(dtype, shape, 9)}, exactly,
                           [&](const Kernels& kernels, const Views& v) {
                             kernels.image().batch_norm(v[0], some.by(v[1], v[2]), v[3], v[4], v[5]);
                           });
      for (const std::size_t to : {7, 4})
        check_like_reference(
            {x, some.mean, some.variance, some.gamma, noise(dtype, shape, 2), noise(sum_type(dtype), {channels}, 3),
             noise(sum_type(dtype), {channels}, 4), filled(dtype, shape, 9)},
            exactly, [&](const Kernels& kernels, const Views& v) {
              kernels.image().batch_norm_input_gradient(v[0], some.by(v[1], v[2]), v[3], v[4], v[5], v[6], v[to]);
            });
    }
}

TEST_CASE("dropout on a GPU has the host's bits, wherever its random words begin") {
  const RandomStream random{77, RandomStream::Purpose::dropout, (std::uint64_t{5} << 40) + 3};
  for (const DType dtype : float_types)
    for (const std::int64_t count : {0, 1, 3, 4, 5, 255, 1027, static_cast<int>(most_blocks() * 1024 + 6)})
      for (const std::uint64_t first :
           {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{6}, (std::uint64_t{1} << 48) + 7})
        for (const double rate : {0., 0.25, 0.999}) {
          CAPTURE(name_of(dtype), count, first, rate);
          check_like_reference({filled(dtype, {count}, 9)}, exactly, [&](const Kernels& kernels, const Views& v) {
            kernels.image().dropout_mask(random, first, rate, v[0]);
          });
        }
}

TEST_CASE("factors and moving averages on a GPU have the host's bits") {
  for (const DType dtype : image_types)
    for (const std::int64_t count : element_counts()) {
      CAPTURE(name_of(dtype), count);
      const Tensor x = noise(dtype, {count}, 1), factors = noise(sum_type(dtype), {count}, 2);
      for (const std::size_t to : {2, 0})
        check_like_reference(
            {x, factors, filled(dtype, {count}, 9)}, exactly,
            [to](const Kernels& kernels, const Views& v) { kernels.image().multiply(v[0], v[1], v[to]); });
      if (dtype == DType::bf16) continue;
      check_like_reference({x, factors}, exactly, [](const Kernels& kernels, const Views& v) {
        kernels.image().moving_average(v[0], v[1], 7, 0.9);
      });
    }
}
