#include "ops/reference/image_reference.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <span>

#include "ops/reference/image_loops.hpp"
#include "ops/reference/typed.hpp"
#include "ops/with_type.hpp"

namespace lockstep::ops {
namespace {

constexpr DeviceKind here = DeviceKind::cpu;

template <class T>
loops::ChannelScale<T> scale_of(const ChannelSizes& sizes, const Normalisation& by) {
  return loops::channel_scale<T>(sizes, data<T>(by.mean), data<T>(by.variance), by.samples, by.epsilon);
}

}  // namespace

void ReferenceImageKernels::convolution(const TensorView& x, const TensorView& weight, const TensorView& bias,
                                        Activation activation, const TensorView& y) const {
  const ConvolutionSizes sizes = check_convolution(here, x, weight, bias, y);
  with_type(y.dtype(), [&]<class T>() {
    loops::convolution(sizes, data<T>(x), data<T>(weight), data<T>(bias), data<T>(y));
    if (activation == Activation::relu) loops::relu(data<T>(y), data<T>(y), y.count());
  });
}

void ReferenceImageKernels::convolution_gradients(const TensorView& x, const TensorView& dy, const TensorView& d_weight,
                                                  const TensorView& d_bias) const {
  const ConvolutionSizes sizes = check_convolution_gradients(here, x, dy, d_weight, d_bias);
  with_type(x.dtype(), [&]<class T>() {
    loops::convolution_gradients(sizes, data<T>(x), data<T>(dy), data<T>(d_weight), data<T>(d_bias));
  });
}

void ReferenceImageKernels::convolution_input_gradient(const TensorView& dy, const TensorView& weight,
                                                       const TensorView& dx) const {
  const ConvolutionSizes sizes = check_convolution_input_gradient(here, dy, weight, dx);
  with_type(dx.dtype(),
            [&]<class T>() { loops::convolution_input_gradient(sizes, data<T>(dy), data<T>(weight), data<T>(dx)); });
}

void ReferenceImageKernels::max_pool(const TensorView& x, const TensorView& y) const {
  const PoolSizes sizes = check_max_pool(here, x, y);
  with_type(x.dtype(), [&]<class T>() { loops::max_pool(sizes, data<T>(x), data<T>(y)); });
}

void ReferenceImageKernels::max_pool_gradient(const TensorView& x, const TensorView& dy, const TensorView& dx) const {
  const PoolSizes sizes = check_max_pool_gradient(here, x, dy, dx);
  with_type(x.dtype(), [&]<class T>() { loops::max_pool_gradient(sizes, data<T>(x), data<T>(dy), data<T>(dx)); });
}

void ReferenceImageKernels::channel_means(const TensorView& x, const TensorView& sum) const {
  const ChannelSizes sizes = check_channel_means(here, x, sum);
  with_type(x.dtype(), [&]<class T>() { loops::channel_means(sizes, data<T>(x), data<T>(sum)); });
}

void ReferenceImageKernels::channel_variances(const TensorView& x, const TensorView& means, std::int64_t samples,
                                              const TensorView& sum) const {
  const ChannelSizes sizes = check_channel_variances(here, x, means, samples, sum);
  with_type(x.dtype(),
            [&]<class T>() { loops::channel_variances(sizes, data<T>(x), data<T>(means), samples, data<T>(sum)); });
}

void ReferenceImageKernels::batch_norm(const TensorView& x, const Normalisation& by, const TensorView& gamma,
                                       const TensorView& beta, const TensorView& y) const {
  const ChannelSizes sizes = check_batch_norm(here, x, by, gamma, beta, y);
  with_type(x.dtype(), [&]<class T>() {
    loops::batch_norm(sizes, data<T>(x), scale_of<T>(sizes, by), data<T>(gamma), data<T>(beta), data<T>(y));
  });
}

void ReferenceImageKernels::batch_norm_gradients(const TensorView& x, const Normalisation& by, const TensorView& dy,
                                                 const TensorView& d_gamma, const TensorView& d_beta) const {
  const ChannelSizes sizes = check_batch_norm_gradients(here, x, by, dy, d_gamma, d_beta);
  with_type(x.dtype(), [&]<class T>() {
    loops::batch_norm_gradients(sizes, data<T>(x), scale_of<T>(sizes, by), data<T>(dy), data<T>(d_gamma),
                                data<T>(d_beta));
  });
}

void ReferenceImageKernels::batch_norm_input_gradient(const TensorView& x, const Normalisation& by,
                                                      const TensorView& gamma, const TensorView& dy,
                                                      const TensorView& d_gamma, const TensorView& d_beta,
                                                      const TensorView& dx) const {
  const ChannelSizes sizes = check_batch_norm_input_gradient(here, x, by, gamma, dy, d_gamma, d_beta, dx);
  with_type(x.dtype(), [&]<class T>() {
    loops::batch_norm_input_gradient(sizes, data<T>(x), scale_of<T>(sizes, by), by.samples, data<T>(gamma), data<T>(dy),
                                     data<T>(d_gamma), data<T>(d_beta), data<T>(dx));
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
  // Exact for the usual rates; never off by more than a probability of 2^-33.
  const auto dropped_below = static_cast<std::uint64_t>(std::llround(rate * 0x1p32));
  with_type(mask.dtype(), [&]<class T>() {
    const T kept = static_cast<T>(1 / (1 - rate));
    std::array<std::uint32_t, 256> words;
    for (std::span<T> rest = mask.elements<T>(); !rest.empty(); first += words.size()) {
      const auto now = rest.first(std::min(words.size(), rest.size()));
      random.words(first, std::span{words}.first(now.size()));
      for (std::size_t i = 0; i < now.size(); ++i) now[i] = words[i] < dropped_below ? T{0} : kept;
      rest = rest.subspan(now.size());
    }
  });
}

void ReferenceImageKernels::multiply(const TensorView& x, const TensorView& factors, const TensorView& y) const {
  check_multiply(here, x, factors, y);
  with_type(x.dtype(), [&]<class T>() { loops::multiply(data<T>(x), data<T>(factors), data<T>(y), x.count()); });
}

}  // namespace lockstep::ops
