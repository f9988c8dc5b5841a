#include "models/ops/reference/image_reference.hpp"

#include <algorithm>
#include <array>
#include <span>
#include <type_traits>

#include "models/ops/reference/image_loops.hpp"
#include "models/ops/reference/stored.hpp"
#include "models/ops/reference/typed.hpp"
#include "models/ops/with_type.hpp"

namespace lockstep::ops {
namespace {

constexpr DeviceKind here = DeviceKind::cpu;

template <class T>
loops::ChannelScale<T> scale_of(const ChannelSizes& sizes, const Normalisation& by) {
  return loops::channel_scale<T>(sizes, data<T>(by.mean), data<T>(by.variance), by.samples, by.epsilon);
}

/// Calls body(sizes, first, first_pooled) for one image after the other if they are widened, otherwise for all; the
/// numbers are those of the elements before.
template <class T, class Body>
void for_images(const PoolSizes& sizes, Body&& body) {
  PoolSizes some = sizes;
  if (std::is_same_v<T, BFloat16>) some.images = 1;
  for (std::int64_t image = 0; image < sizes.images; image += some.images)
    body(some, image * some.elements(), image * some.pooled_elements());
}

/// Calls body(sizes, first) for pieces of the rows, in order; `first` is the number of the elements before.
template <class T, class Body>
void for_pieces(const ChannelSizes& sizes, Body&& body) {
  const std::int64_t rows = sizes.rows(), channels = std::max<std::int64_t>(sizes.channels, 1);
  const std::int64_t piece = std::max<std::int64_t>(piece_of<T>(rows * channels) / channels, 1);
  for (std::int64_t row = 0; row < rows; row += piece)
    body(ChannelSizes{.samples = 1, .positions = std::min(piece, rows - row), .channels = sizes.channels},
         row * sizes.channels);
}

}  // namespace

void ReferenceImageKernels::convolution(const TensorView& x, const TensorView& weight, const TensorView& bias,
                                        Kernels::Activation activation, const TensorView& y) const {
  const ConvolutionSizes sizes = check_convolution(here, x, weight, bias, y);
  if (y.dtype() == DType::bf16) {
    const Tensor wide_x = widened(x), wide_weight = widened(weight);
    return rounded(y,
                   [&](const TensorView& to) { convolution(wide_x.view(), wide_weight.view(), bias, activation, to); });
  }
  with_type(y.dtype(), [&]<class T>() {
    loops::convolution(sizes, data<T>(x), data<T>(weight), data<T>(bias), data<T>(y));
    if (activation == Kernels::Activation::relu) loops::relu(data<T>(y), data<T>(y), y.count());
  });
}

void ReferenceImageKernels::convolution_gradients(const TensorView& x, const TensorView& dy, const TensorView& d_weight,
                                                  const TensorView& d_bias) const {
  const ConvolutionSizes sizes = check_convolution_gradients(here, x, dy, d_weight, d_bias);
  if (x.dtype() == DType::bf16) return convolution_gradients(widened(x).view(), widened(dy).view(), d_weight, d_bias);
  with_type(x.dtype(), [&]<class T>() {
    loops::convolution_gradients(sizes, data<T>(x), data<T>(dy), data<T>(d_weight), data<T>(d_bias));
  });
}

void ReferenceImageKernels::convolution_input_gradient(const TensorView& dy, const TensorView& weight,
                                                       const TensorView& dx) const {
  const ConvolutionSizes sizes = check_convolution_input_gradient(here, dy, weight, dx);
  if (dx.dtype() == DType::bf16) {
    const Tensor wide_dy = widened(dy), wide_weight = widened(weight);
    return rounded(dx,
                   [&](const TensorView& to) { convolution_input_gradient(wide_dy.view(), wide_weight.view(), to); });
  }
  with_type(dx.dtype(),
            [&]<class T>() { loops::convolution_input_gradient(sizes, data<T>(dy), data<T>(weight), data<T>(dx)); });
}

void ReferenceImageKernels::max_pool(const TensorView& x, const TensorView& y) const {
  const PoolSizes sizes = check_max_pool(here, x, y);
  with_stored_type(x.dtype(), [&]<class T>() {
    Computed<T> of_x, of_y;
    for_images<T>(sizes, [&](const PoolSizes& some, std::int64_t first, std::int64_t first_pooled) {
      loops::max_pool(some, of_x.read(data<T>(x) + first, some.elements()),
                      of_y.write(data<T>(y) + first_pooled, some.pooled_elements()));
      of_y.store();
    });
  });
}

void ReferenceImageKernels::max_pool_gradient(const TensorView& x, const TensorView& dy, const TensorView& dx) const {
  const PoolSizes sizes = check_max_pool_gradient(here, x, dy, dx);
  with_stored_type(x.dtype(), [&]<class T>() {
    Computed<T> of_x, of_dy, of_dx;
    for_images<T>(sizes, [&](const PoolSizes& some, std::int64_t first, std::int64_t first_pooled) {
      loops::max_pool_gradient(some, of_x.read(data<T>(x) + first, some.elements()),
                               of_dy.read(data<T>(dy) + first_pooled, some.pooled_elements()),
                               of_dx.write(data<T>(dx) + first, some.elements()));
      of_dx.store();
    });
  });
}

void ReferenceImageKernels::channel_means(const TensorView& x, const TensorView& sum) const {
  const ChannelSizes sizes = check_channel_means(here, x, sum);
  with_stored_type(x.dtype(),
                   [&]<class T>() { loops::channel_means(sizes, data<T>(x), data<detail::computed_t<T>>(sum)); });
}

void ReferenceImageKernels::channel_variances(const TensorView& x, const TensorView& means, std::int64_t samples,
                                              const TensorView& sum) const {
  const ChannelSizes sizes = check_channel_variances(here, x, means, samples, sum);
  with_stored_type(x.dtype(), [&]<class T>() {
    using Sum = detail::computed_t<T>;
    loops::channel_variances(sizes, data<T>(x), data<Sum>(means), samples, data<Sum>(sum));
  });
}

void ReferenceImageKernels::batch_norm(const TensorView& x, const Normalisation& by, const TensorView& gamma,
                                       const TensorView& beta, const TensorView& y) const {
  const ChannelSizes sizes = check_batch_norm(here, x, by, gamma, beta, y);
  with_stored_type(x.dtype(), [&]<class T>() {
    using Number = detail::computed_t<T>;
    const auto scale = scale_of<Number>(sizes, by);
    Computed<T> of_x, of_y;
    for_pieces<T>(sizes, [&](const ChannelSizes& some, std::int64_t first) {
      const std::int64_t count = some.rows() * some.channels;
      loops::batch_norm(some, of_x.read(data<T>(x) + first, count), scale, data<Number>(gamma), data<Number>(beta),
                        of_y.write(data<T>(y) + first, count));
      of_y.store();
    });
  });
}

void ReferenceImageKernels::batch_norm_gradients(const TensorView& x, const Normalisation& by, const TensorView& dy,
                                                 const TensorView& d_gamma, const TensorView& d_beta) const {
  const ChannelSizes sizes = check_batch_norm_gradients(here, x, by, dy, d_gamma, d_beta);
  with_stored_type(x.dtype(), [&]<class T>() {
    using Sum = detail::computed_t<T>;
    loops::batch_norm_gradients(sizes, data<T>(x), scale_of<Sum>(sizes, by), data<T>(dy), data<Sum>(d_gamma),
                                data<Sum>(d_beta));
  });
}

void ReferenceImageKernels::batch_norm_input_gradient(const TensorView& x, const Normalisation& by,
                                                      const TensorView& gamma, const TensorView& dy,
                                                      const TensorView& d_gamma, const TensorView& d_beta,
                                                      const TensorView& dx) const {
  const ChannelSizes sizes = check_batch_norm_input_gradient(here, x, by, gamma, dy, d_gamma, d_beta, dx);
  const double normalised = static_cast<double>(by.samples) * static_cast<double>(sizes.positions);
  with_stored_type(x.dtype(), [&]<class T>() {
    using Number = detail::computed_t<T>;
    const auto scale = scale_of<Number>(sizes, by);
    Computed<T> of_x, of_dy, of_dx;
    for_pieces<T>(sizes, [&](const ChannelSizes& some, std::int64_t first) {
      const std::int64_t count = some.rows() * some.channels;
      loops::batch_norm_input_gradient(some, of_x.read(data<T>(x) + first, count), scale, normalised,
                                       data<Number>(gamma), of_dy.read(data<T>(dy) + first, count),
                                       data<Number>(d_gamma), data<Number>(d_beta),
                                       of_dx.write(data<T>(dx) + first, count));
      of_dx.store();
    });
  });
}

void ReferenceImageKernels::moving_average(const TensorView& average, const TensorView& sum, double divisor,
                                           double momentum) const {
  check_moving_average(here, average, sum, divisor);
  with_type(average.dtype(), [&]<class T>() {
    loops::moving_average(data<T>(average), data<T>(sum), static_cast<T>(divisor), static_cast<T>(momentum),
                          average.count());
  });
}

void ReferenceImageKernels::dropout_mask(const RandomStream& random, std::uint64_t first, double rate,
                                         const TensorView& mask) const {
  check_dropout_mask(here, rate, mask);
  const std::uint64_t limit = dropped_below(rate);
  with_type(mask.dtype(), [&]<class T>() {
    const T kept = static_cast<T>(1 / (1 - rate));
    std::array<std::uint32_t, 256> words;
    for (std::span<T> rest = mask.elements<T>(); !rest.empty(); first += words.size()) {
      const auto now = rest.first(std::min(words.size(), rest.size()));
      random.words(first, std::span{words}.first(now.size()));
      for (std::size_t i = 0; i < now.size(); ++i) now[i] = words[i] < limit ? T{0} : kept;
      rest = rest.subspan(now.size());
    }
  });
}

void ReferenceImageKernels::multiply(const TensorView& x, const TensorView& factors, const TensorView& y) const {
  check_multiply(here, x, factors, y);
  with_stored_type(x.dtype(), [&]<class T>() {
    using Number = detail::computed_t<T>;
    const auto body = [](std::int64_t n, Number* to, const Number* from, const Number* by) {
      loops::multiply(from, by, to, n);
    };
    map_elements(x.count(), data<T>(y), body, data<T>(x), data<Number>(factors));
  });
}

}  // namespace lockstep::ops
