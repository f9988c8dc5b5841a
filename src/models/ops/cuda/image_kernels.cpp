#include "models/ops/cuda/image_kernels.hpp"

#include <algorithm>

#include "core/device/cuda/native.hpp"
#include "models/ops/checks.hpp"
#include "models/ops/cuda/typed.hpp"
#include "models/ops/patch_memory.hpp"
#include "models/ops/with_type.hpp"

namespace lockstep::ops::cuda {
namespace {

using lockstep::detail::check_cuda;
using lockstep::detail::native;

/// The patches of some images at a time, in the order of the images, as the rows of a matrix.
class PatchMatrix {
 public:
  /// With elements of `dtype`. See CudaImageKernels for `bytes`.
  PatchMatrix(const ConvolutionSizes& sizes, DType dtype, std::size_t bytes)
      : sizes_{sizes}, dtype_{dtype}, memory_{patch_memory(sizes, dtype, bytes)} {}

  std::int64_t columns() const { return sizes_.kernel_height * sizes_.kernel_width * sizes_.inputs; }
  std::int64_t rows(std::int64_t images) const { return images * sizes_.rows() * sizes_.columns(); }

  std::size_t bytes() const { return memory_.bytes; }

  /// Calls `body(first, patches)` for each run of images, from number `first` on.
  template <class Body>
  void for_each_run(Body&& body) const {
    for (std::int64_t first = 0; first < sizes_.images; first += memory_.images)
      body(first, Patches{.images = std::min(memory_.images, sizes_.images - first),
                          .height = sizes_.height,
                          .width = sizes_.width,
                          .channels = sizes_.inputs,
                          .kernel_height = sizes_.kernel_height,
                          .kernel_width = sizes_.kernel_width,
                          .rows = sizes_.rows(),
                          .columns = sizes_.columns()});
  }

  /// The matrix of a run, at `data`.
  TensorView view(std::byte* data, const Patches& run) const {
    return {data, {rows(run.images), columns()}, dtype_, here};
  }

 private:
  const ConvolutionSizes& sizes_;
  DType dtype_;
  PatchMemory memory_;
};

/// `images` of whole images [all images, ...], from number `first` on.
TensorView images_of(const TensorView& whole, std::int64_t first, std::int64_t images) {
  const std::int64_t of_image = whole.count() / whole.shape().front();
  return whole.slice(first * of_image, images * of_image);
}

/// The same, with a row for each position.
TensorView positions_of(const TensorView& whole, std::int64_t first, std::int64_t images) {
  const TensorView some = images_of(whole, first, images);
  const std::int64_t channels = whole.shape().back();
  return some.reshaped({images * whole.shape()[1] * whole.shape()[2], channels});
}

TensorView as_matrix(const TensorView& weight) {
  const Shape& shape = weight.shape();
  return weight.reshaped({shape[0] * shape[1] * shape[2], shape[3]});
}

void im2col(const TensorView& x, std::int64_t first, const Patches& run, const TensorView& patches, Stream& stream) {
  if (patches.count() == 0) return;
  with_stored_type(x.dtype(), [&]<class T>() {
    check_cuda(launch_im2col(run, data<const T>(images_of(x, first, run.images)), data<T>(patches), native(stream)),
               "the launch of im2col");
  });
}

ChannelRows rows_of(const ChannelSizes& sizes) {
  return {.rows = sizes.rows(), .channels = sizes.channels};
}

/// The number of rows that a mean of the rows of one sample divides by.
double divisor_of(const ChannelSizes& sizes) {
  return static_cast<double>(std::max<std::int64_t>(sizes.positions, 1));
}

Images images_of(const PoolSizes& sizes) {
  return {.images = sizes.images, .height = sizes.height, .width = sizes.width, .channels = sizes.channels};
}

template <class T>
ChannelMoments<T> moments_of(const Normalisation& by) {
  return {.mean = data<const T>(by.mean),
          .variance = data<const T>(by.variance),
          .samples = static_cast<double>(by.samples),
          .epsilon = by.epsilon};
}

/// Memory for the parts of a sum over rows.
class Parts {
 public:
  Parts(const Scratch& scratch, const ChannelRows& of)
      : memory_{scratch, static_cast<std::size_t>(channel_parts(of)) * sizeof(double)} {}

  double* data() const { return reinterpret_cast<double*>(memory_.data()); }

 private:
  Scratch::Use memory_;
};

}  // namespace

void CudaImageKernels::convolution(const TensorView& x, const TensorView& weight, const TensorView& bias,
                                   Kernels::Activation activation, const TensorView& y) const {
  const ConvolutionSizes sizes = check_convolution(here, x, weight, bias, y);
  const PatchMatrix matrix{sizes, x.dtype(), bytes_};
  const Scratch::Use memory{memory_, matrix.bytes()};
  matrix.for_each_run([&](std::int64_t first, const Patches& run) {
    const TensorView patches = matrix.view(memory.data(), run);
    im2col(x, first, run, patches, stream_);
    kernels_.linear(patches, as_matrix(weight), bias, activation, positions_of(y, first, run.images));
  });
}

void CudaImageKernels::convolution_gradients(const TensorView& x, const TensorView& dy, const TensorView& d_weight,
                                             const TensorView& d_bias) const {
  const ConvolutionSizes sizes = check_convolution_gradients(here, x, dy, d_weight, d_bias);
  sum_channels({sizes.images * sizes.rows() * sizes.columns(), sizes.outputs}, dy, 1, d_bias);
  if (sizes.images == 0) return d_weight.fill_zero(stream_);
  const PatchMatrix matrix{sizes, x.dtype(), bytes_};
  const std::size_t of_patches = (matrix.bytes() + Buffer::alignment - 1) / Buffer::alignment * Buffer::alignment;
  const Scratch::Use memory{memory_, of_patches + d_weight.bytes()};
  const TensorView sum = as_matrix(d_weight);
  matrix.for_each_run([&](std::int64_t first, const Patches& run) {
    const TensorView patches = matrix.view(memory.data(), run);
    im2col(x, first, run, patches, stream_);
    const TensorView product =
        first == 0 ? sum : TensorView{memory.data() + of_patches, sum.shape(), sum.dtype(), sum.device()};
    kernels_.matmul(patches, Kernels::Transpose::yes, positions_of(dy, first, run.images), Kernels::Transpose::no,
                    product);
    if (first > 0) kernels_.add(sum, product);
  });
}

void CudaImageKernels::convolution_input_gradient(const TensorView& dy, const TensorView& weight,
                                                  const TensorView& dx) const {
  const ConvolutionSizes sizes = check_convolution_input_gradient(here, dy, weight, dx);
  if (dx.count() == 0) return;
  // Not rounded to bf16 before they are added up.
  const PatchMatrix matrix{sizes, sum_type(dx.dtype()), bytes_};
  const Scratch::Use memory{memory_, matrix.bytes()};
  matrix.for_each_run([&](std::int64_t first, const Patches& run) {
    const TensorView d_patches = matrix.view(memory.data(), run);
    kernels_.matmul(positions_of(dy, first, run.images), Kernels::Transpose::no, as_matrix(weight),
                    Kernels::Transpose::yes, d_patches);
    with_stored_type(dx.dtype(), [&]<class T>() {
      check_cuda(launch_col2im(run, data<const detail::computed_t<T>>(d_patches),
                               data<T>(images_of(dx, first, run.images)), native(stream_)),
                 "the launch of col2im");
    });
  });
}

void CudaImageKernels::max_pool(const TensorView& x, const TensorView& y) const {
  const PoolSizes sizes = check_max_pool(here, x, y);
  if (y.count() == 0) return;
  with_stored_type(x.dtype(), [&]<class T>() {
    check_cuda(launch_max_pool(images_of(sizes), data<const T>(x), data<T>(y), native(stream_)),
               "the launch of max_pool");
  });
}

void CudaImageKernels::max_pool_gradient(const TensorView& x, const TensorView& dy, const TensorView& dx) const {
  const PoolSizes sizes = check_max_pool_gradient(here, x, dy, dx);
  if (x.count() == 0) return;
  with_stored_type(x.dtype(), [&]<class T>() {
    check_cuda(
        launch_max_pool_gradient(images_of(sizes), data<const T>(x), data<const T>(dy), data<T>(dx), native(stream_)),
        "the launch of max_pool_gradient");
  });
}

void CudaImageKernels::sum_channels(const ChannelRows& of, const TensorView& x, double divisor,
                                    const TensorView& sum) const {
  if (of.channels == 0) return;
  const Parts parts{memory_, of};
  with_stored_type(x.dtype(), [&]<class T>() {
    check_cuda(launch_channel_sums(of, data<const T>(x), divisor, parts.data(), data<detail::computed_t<T>>(sum),
                                   native(stream_)),
               "the launch of a sum over channels");
  });
}

void CudaImageKernels::channel_means(const TensorView& x, const TensorView& sum) const {
  const ChannelSizes sizes = check_channel_means(here, x, sum);
  sum_channels(rows_of(sizes), x, divisor_of(sizes), sum);
}

void CudaImageKernels::channel_variances(const TensorView& x, const TensorView& means, std::int64_t samples,
                                         const TensorView& sum) const {
  const ChannelSizes sizes = check_channel_variances(here, x, means, samples, sum);
  if (sizes.channels == 0) return;
  const Parts parts{memory_, rows_of(sizes)};
  with_stored_type(x.dtype(), [&]<class T>() {
    check_cuda(launch_channel_squares(rows_of(sizes), data<const T>(x), data<const detail::computed_t<T>>(means),
                                      static_cast<double>(samples), divisor_of(sizes), parts.data(),
                                      data<detail::computed_t<T>>(sum), native(stream_)),
               "the launch of channel_variances");
  });
}

void CudaImageKernels::batch_norm(const TensorView& x, const Normalisation& by, const TensorView& gamma,
                                  const TensorView& beta, const TensorView& y) const {
  const ChannelSizes sizes = check_batch_norm(here, x, by, gamma, beta, y);
  if (y.count() == 0) return;
  with_stored_type(x.dtype(), [&]<class T>() {
    using Number = detail::computed_t<T>;
    check_cuda(launch_batch_norm(rows_of(sizes), data<const T>(x), moments_of<Number>(by), data<const Number>(gamma),
                                 data<const Number>(beta), data<T>(y), native(stream_)),
               "the launch of batch_norm");
  });
}

void CudaImageKernels::batch_norm_gradients(const TensorView& x, const Normalisation& by, const TensorView& dy,
                                            const TensorView& d_gamma, const TensorView& d_beta) const {
  const ChannelSizes sizes = check_batch_norm_gradients(here, x, by, dy, d_gamma, d_beta);
  sum_channels(rows_of(sizes), dy, 1, d_beta);
  if (sizes.channels == 0) return;
  const Parts parts{memory_, rows_of(sizes)};
  with_stored_type(x.dtype(), [&]<class T>() {
    using Number = detail::computed_t<T>;
    check_cuda(launch_channel_products(rows_of(sizes), data<const T>(x), moments_of<Number>(by), data<const T>(dy),
                                       parts.data(), data<Number>(d_gamma), native(stream_)),
               "the launch of batch_norm_gradients");
  });
}

void CudaImageKernels::batch_norm_input_gradient(const TensorView& x, const Normalisation& by, const TensorView& gamma,
                                                 const TensorView& dy, const TensorView& d_gamma,
                                                 const TensorView& d_beta, const TensorView& dx) const {
  const ChannelSizes sizes = check_batch_norm_input_gradient(here, x, by, gamma, dy, d_gamma, d_beta, dx);
  if (dx.count() == 0) return;
  const double normalised = static_cast<double>(by.samples) * static_cast<double>(sizes.positions);
  with_stored_type(x.dtype(), [&]<class T>() {
    using Number = detail::computed_t<T>;
    check_cuda(launch_batch_norm_gradient(rows_of(sizes), data<const T>(x), moments_of<Number>(by), normalised,
                                          data<const Number>(gamma), data<const T>(dy), data<const Number>(d_gamma),
                                          data<const Number>(d_beta), data<T>(dx), native(stream_)),
               "the launch of batch_norm_input_gradient");
  });
}

void CudaImageKernels::moving_average(const TensorView& average, const TensorView& sum, double divisor,
                                      double momentum) const {
  check_moving_average(here, average, sum, divisor);
  if (average.count() == 0) return;
  with_type(average.dtype(), [&]<class T>() {
    check_cuda(launch_moving_average(data<T>(average), data<const T>(sum), static_cast<T>(divisor),
                                     static_cast<T>(momentum), average.count(), native(stream_)),
               "the launch of moving_average");
  });
}

void CudaImageKernels::dropout_mask(const RandomStream& random, std::uint64_t first, double rate,
                                    const TensorView& mask) const {
  check_dropout_mask(here, rate, mask);
  if (mask.count() == 0) return;
  with_type(mask.dtype(), [&]<class T>() {
    check_cuda(launch_dropout_mask(PhiloxWords{random}, first, dropped_below(rate), static_cast<T>(1 / (1 - rate)),
                                   data<T>(mask), mask.count(), native(stream_)),
               "the launch of dropout_mask");
  });
}

void CudaImageKernels::multiply(const TensorView& x, const TensorView& factors, const TensorView& y) const {
  check_multiply(here, x, factors, y);
  if (x.count() == 0) return;
  with_stored_type(x.dtype(), [&]<class T>() {
    check_cuda(launch_multiply(data<const T>(x), data<const detail::computed_t<T>>(factors), data<T>(y), x.count(),
                               native(stream_)),
               "the launch of multiply");
  });
}

}  // namespace lockstep::ops::cuda
