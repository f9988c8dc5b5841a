// Operands without elements are handled before anything is launched, because neither CUDA nor cuBLASLt accepts them.
#include "models/ops/cuda/cuda_kernels.hpp"

#include <cstdlib>

#include <fmt/format.h>

#include "core/device/cuda/answers.hpp"
#include "core/device/cuda/native.hpp"
#include "core/device/cuda/scratch.hpp"
#include "core/device/device.hpp"
#include "core/device/device_call.hpp"
#include "core/tensor/computed.hpp"
#include "core/tensor/cuda/convert.hpp"
#include "models/ops/answer.hpp"
#include "models/ops/checks.hpp"
#include "models/ops/cuda/arithmetic_variables.hpp"
#include "models/ops/cuda/image_kernels.hpp"
#include "models/ops/cuda/launch.hpp"
#include "models/ops/cuda/products.hpp"
#include "models/ops/cuda/sequence_kernels.hpp"
#include "models/ops/cuda/typed.hpp"
#include "models/ops/product_tree.hpp"
#include "models/ops/with_type.hpp"

namespace lockstep::ops {
namespace {

using cuda::data;
using cuda::here;
using detail::check_cuda;
using detail::native;

/// "13.0", from CUDA's 13000.
std::string version(int number) {
  return fmt::format("{}.{}", number / 1000, number % 1000 / 10);
}

std::string fingerprint_of_current_gpu() {
  const lockstep::detail::DeviceCall call;
  int index = 0;
  check_cuda(cudaGetDevice(&index), "cudaGetDevice");
  cudaDeviceProp gpu{};
  check_cuda(cudaGetDeviceProperties(&gpu, index), "cudaGetDeviceProperties");
  int runtime = 0;
  check_cuda(cudaRuntimeGetVersion(&runtime), "cudaRuntimeGetVersion");
  int driver = 0;
  check_cuda(cudaDriverGetVersion(&driver), "cudaDriverGetVersion");
  return fmt::format("{}, compute capability {}.{}, {} multiprocessors, cuBLASLt {}, CUDA {}, driver for CUDA {}{}",
                     gpu.name, gpu.major, gpu.minor, gpu.multiProcessorCount, cuda::library_version(), version(runtime),
                     version(driver), cuda::arithmetic_variables(std::getenv));
}

class CudaKernels final : public Kernels {
 public:
  explicit CudaKernels(Stream& stream)
      : stream_{stream}, products_{stream}, scratch_{stream}, answers_{stream, scratch_} {
    (void)native(stream_);
    fingerprint_ = fingerprint_of_current_gpu();
  }

  const ImageKernels& image() const override { return image_; }
  const SequenceKernels& sequence() const override { return sequence_; }

  std::string_view name() const override { return "cuda"; }
  std::string fingerprint() const override { return fingerprint_; }

  void convert(const TensorView& x, const TensorView& y) const override {
    check_convert(here, x, y);
    detail::cuda::convert(x, y, stream_);
  }

  void matmul(const Matrix& a, Kernels::Transpose transpose_a, const Matrix& b, Kernels::Transpose transpose_b,
              const Matrix& c) const override {
    const MatmulSizes sizes = check_matmul(here, a, transpose_a, b, transpose_b, c);
    multiply({sizes, a, transpose_a, b, transpose_b, c, {}}, cuda::Epilogue::none);
  }

  std::int64_t row_stride(std::int64_t columns) const override {
    constexpr std::int64_t unit = 64;  // NVIDIA's advice, for tiles of all sizes
    return (columns + unit - 1) / unit * unit;
  }

  void sum_of_products(std::span<const Kernels::Factors> factors, const TensorView& c) const override {
    check_sum_of_products(here, factors, c);
    const std::size_t apart = (c.bytes() + Buffer::alignment - 1) / Buffer::alignment * Buffer::alignment;
    const detail::cuda::Scratch::Use memory{scratch_, results_beside(factors) * apart};
    sum_of_whole_products(*this, factors, c, [&](std::size_t number) {
      return TensorView{memory.data() + number * apart, c.shape(), c.dtype(), c.device()};
    });
  }

  void linear(const TensorView& x, const TensorView& weight, const TensorView& bias, Kernels::Activation activation,
              const TensorView& y) const override {
    const MatmulSizes sizes = check_linear(here, x, weight, bias, y);
    if (y.dtype() == DType::bf16) return rounded_linear(sizes, x, weight, bias, activation, y);
    const cuda::ProductCall call{sizes, x, Kernels::Transpose::no, weight, Kernels::Transpose::no, y, bias};
    // Fuses as much as the library can; one kernel each does the rest.
    if (activation == Kernels::Activation::relu && multiply(call, cuda::Epilogue::bias_relu)) return;
    if (!multiply(call, cuda::Epilogue::bias)) {
      multiply(call, cuda::Epilogue::none);
      add_bias(y, bias);
    }
    if (activation == Kernels::Activation::relu) relu(y, y);
  }

  void add_bias(const TensorView& rows, const TensorView& bias) const override {
    check_rows(here, "add_bias", rows, bias);
    if (rows.count() == 0) return;
    with_stored_type(rows.dtype(), [&]<class T>() {
      check_cuda(cuda::launch_add_bias(data<T>(rows), data<const detail::computed_t<T>>(bias), rows.shape()[0],
                                       bias.count(), native(stream_)),
                 "the launch of add_bias");
    });
  }

  void sum_rows(const TensorView& rows, const TensorView& out) const override {
    check_rows(here, "sum_rows", rows, out);
    if (out.count() == 0) return;
    with_stored_type(rows.dtype(), [&]<class T>() {
      check_cuda(cuda::launch_sum_rows(data<const T>(rows), data<detail::computed_t<T>>(out), rows.shape()[0],
                                       out.count(), native(stream_)),
                 "the launch of sum_rows");
    });
  }

  void relu(const TensorView& x, const TensorView& y) const override {
    check_same_or_apart(here, "relu", x, y);
    if (x.count() == 0) return;
    with_stored_type(x.dtype(), [&]<class T>() {
      check_cuda(cuda::launch_relu(data<const T>(x), data<T>(y), x.count(), native(stream_)), "the launch of relu");
    });
  }

  void relu_gradient(const TensorView& y, const TensorView& dy, const TensorView& dx) const override {
    check_same_or_apart(here, "relu_gradient", y, dx);
    check_same_or_apart(here, "relu_gradient", dy, dx);
    if (y.count() == 0) return;
    with_stored_type(y.dtype(), [&]<class T>() {
      check_cuda(
          cuda::launch_relu_gradient(data<const T>(y), data<const T>(dy), data<T>(dx), y.count(), native(stream_)),
          "the launch of relu_gradient");
    });
  }

  Answer<BatchLoss> start_softmax_cross_entropy(const Matrix& logits, const TensorView& labels, std::int64_t samples,
                                                const Matrix& d_logits) const override {
    check_cross_entropy(here, logits, labels, samples, d_logits);
    return cross_entropy(logits, labels, samples, &d_logits);
  }

  Answer<BatchLoss> start_softmax_cross_entropy(const Matrix& logits, const TensorView& labels,
                                                std::int64_t samples) const override {
    check_cross_entropy(here, logits, labels, samples);
    return cross_entropy(logits, labels, samples, nullptr);
  }

  void add(const TensorView& sum, const TensorView& x) const override {
    check_apart(here, "add", sum, x);
    if (x.count() == 0) return;
    with_stored_type(sum.dtype(), [&]<class T>() {
      check_cuda(cuda::launch_add(data<T>(sum), data<const T>(x), x.count(), native(stream_)), "the launch of add");
    });
  }

 private:
  /// The library can only add a bias of y's type. So it leaves the sums in f32, and they are rounded once.
  void rounded_linear(const MatmulSizes& sizes, const TensorView& x, const TensorView& weight, const TensorView& bias,
                      Kernels::Activation activation, const TensorView& y) const {
    if (y.count() == 0) return;
    const detail::cuda::Scratch::Use memory{scratch_, static_cast<std::size_t>(y.count()) * sizeof(float)};
    const TensorView sums{memory.data(), y.shape(), DType::f32, y.device()};
    multiply({sizes, x, Kernels::Transpose::no, weight, Kernels::Transpose::no, sums, {}}, cuda::Epilogue::none);
    check_cuda(cuda::launch_round_layer(data<const float>(sums), data<const float>(bias),
                                        activation == Kernels::Activation::relu, data<BFloat16>(y), sizes.m, sizes.n,
                                        native(stream_)),
               "the launch of linear");
  }

  /// Products::multiply for any extents.
  bool multiply(const cuda::ProductCall& call, cuda::Epilogue epilogue) const {
    if (call.c.rows() == 0 || call.c.columns == 0) return true;
    if (call.sizes.k > 0) return products_.multiply(call, epilogue);
    if (epilogue != cuda::Epilogue::none) return false;
    call.c.view.fill_zero(stream_);
    return true;
  }

  Answer<BatchLoss> cross_entropy(const Matrix& logits, const TensorView& labels, std::int64_t samples,
                                  const Matrix* d_logits) const {
    if (samples == 0) {
      if (d_logits) d_logits->view.fill_zero(stream_);
      return BatchLoss{};
    }
    const auto row_bytes = static_cast<std::size_t>(samples) * sizeof(cuda::SoftmaxRow);
    const detail::cuda::Answers::Call call{answers_, sizeof(cuda::SoftmaxAnswer) + row_bytes};
    auto* const answer = reinterpret_cast<cuda::SoftmaxAnswer*>(call.memory());
    auto* const row_shares = reinterpret_cast<cuda::SoftmaxRow*>(answer + 1);
    with_stored_type(logits.view.dtype(), [&]<class T>() {
      const cuda::SoftmaxBatch<T> batch{.logits = data<const T>(logits.view),
                                        .labels = data<const std::int32_t>(labels),
                                        .rows = logits.rows(),
                                        .classes = logits.columns,
                                        .stride = logits.stride(),
                                        .samples = samples,
                                        .d_logits = d_logits ? data<T>(d_logits->view) : nullptr};
      check_cuda(cuda::launch_softmax(batch, row_shares, answer, native(stream_)),
                 "the launch of softmax_cross_entropy");
    });
    return {stream_, [result = call.send<cuda::SoftmaxAnswer>(), samples, logits] {
              if (result->bad_row < samples) throw label_outside(result->bad_label, result->bad_row, logits);
              return BatchLoss{.loss_sum = result->loss_sum, .correct = result->correct};
            }};
  }

  Stream& stream_;
  cuda::Products products_;
  detail::cuda::Scratch scratch_;
  detail::cuda::Answers answers_;
  cuda::CudaSequenceKernels sequence_{stream_, products_, answers_, scratch_};
  cuda::CudaImageKernels image_{stream_, *this};
  std::string fingerprint_;
};

}  // namespace

std::unique_ptr<Kernels> cuda::make_kernels(Stream& stream) {
  return std::make_unique<CudaKernels>(stream);
}

}  // namespace lockstep::ops
