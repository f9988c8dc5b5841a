// Matrix products, convolutions and GELU of f32 by oneDNN; all else is the reference's.
#include <fmt/format.h>
#include <oneapi/dnnl/dnnl.h>

#include <lockstep/base/error.hpp>

#include "../backends.hpp"
#include "../checks.hpp"
#include "../reference/attention.hpp"
#include "../reference/reference.hpp"
#include "../sequence_checks.hpp"
#include "convolutions.hpp"
#include "gelu.hpp"
#include "threads.hpp"

namespace lockstep::ops {
namespace {

char letter(Transpose transpose) {
  return transpose == Transpose::yes ? 'T' : 'N';
}

/// c = scale * op(a) · op(b), for extents above zero.
void multiply_blocks(const MatmulSizes& sizes, float scale, const Block<float>& a, Transpose transpose_a,
                     const Block<float>& b, Transpose transpose_b, const Block<float>& c) {
  const dnnl_status_t status = dnnl_sgemm(letter(transpose_a), letter(transpose_b), sizes.m, sizes.n, sizes.k, scale,
                                          a.data, a.stride, b.data, b.stride, 0.f, c.data, c.stride);
  if (status != dnnl_success)
    throw DeviceError{fmt::format("oneDNN failed with status {} on a product of {} x {} x {}", static_cast<int>(status),
                                  sizes.m, sizes.n, sizes.k)};
}

class OneDnnKernels final : public ReferenceKernels {
 public:
  explicit OneDnnKernels(Threads threads) : threads_{threads}, convolutions_{threads} {}

  std::string_view name() const override { return "oneDNN"; }

  std::string fingerprint() const override {
    const dnnl_version_t& version = *dnnl_version();
    return fmt::format("oneDNN {}.{}.{}, instruction set {:#x}, {} thread{}", version.major, version.minor,
                       version.patch, static_cast<unsigned>(dnnl_get_effective_cpu_isa()), threads_.count,
                       threads_.count == 1 ? "" : "s");
  }

  void matmul(const TensorView& a, Transpose transpose_a, const TensorView& b, Transpose transpose_b,
              const TensorView& c) const override {
    const MatmulSizes sizes = check_matmul(DeviceKind::cpu, a, transpose_a, b, transpose_b, c);
    // The library is not asked about nothing: it need not write a sum over no terms.
    if (c.dtype() != DType::f32 || sizes.m == 0 || sizes.n == 0 || sizes.k == 0)
      return ReferenceKernels::matmul(a, transpose_a, b, transpose_b, c);

    const OpenMpThreads threads{threads_};
    multiply_blocks(sizes, 1, {data<float>(a), a.shape()[1]}, transpose_a, {data<float>(b), b.shape()[1]}, transpose_b,
                    {data<float>(c), sizes.n});
  }

  void gelu(const TensorView& x, const TensorView& y) const override {
    check_same_or_apart(DeviceKind::cpu, "gelu", x, y);
    if (x.dtype() != DType::f32 || x.count() == 0) return ReferenceKernels::gelu(x, y);
    const OpenMpThreads threads{threads_};
    onednn::gelu(x, y);
  }

  void gelu_gradient(const TensorView& x, const TensorView& dy, const TensorView& dx) const override {
    check_gelu_gradient(DeviceKind::cpu, x, dy, dx);
    if (x.dtype() != DType::f32 || x.count() == 0) return ReferenceKernels::gelu_gradient(x, dy, dx);
    const OpenMpThreads threads{threads_};
    onednn::gelu_gradient(x, dy, dx);
  }

  void causal_attention(const CausalAttention& operands) const override {
    const AttentionSizes sizes = check_attention(DeviceKind::cpu, operands);
    if (operands.qkv.dtype() != DType::f32 || operands.qkv.count() == 0)
      return ReferenceKernels::causal_attention(operands);
    const OpenMpThreads threads{threads_};
    attend<float>(sizes, operands, multiply_blocks);
  }

  void causal_attention_gradient(const CausalAttentionGradient& operands) const override {
    const AttentionSizes sizes = check_attention(DeviceKind::cpu, operands);
    if (operands.qkv.dtype() != DType::f32 || operands.qkv.count() == 0)
      return ReferenceKernels::causal_attention_gradient(operands);
    const OpenMpThreads threads{threads_};
    attend_gradient<float>(sizes, operands, multiply_blocks);
  }

  void convolution(const TensorView& x, const TensorView& weight, const TensorView& bias, Activation activation,
                   const TensorView& y) const override {
    const ConvolutionSizes sizes = check_convolution(DeviceKind::cpu, x, weight, bias, y);
    if (!Convolutions::can_do(y.dtype(), sizes)) return ReferenceKernels::convolution(x, weight, bias, activation, y);
    convolutions_.forward(sizes, x, weight, bias, y);
    // Not by the library, which would turn a NaN into 0.
    if (activation == Activation::relu) relu(y, y);
  }

  void convolution_gradients(const TensorView& x, const TensorView& dy, const TensorView& d_weight,
                             const TensorView& d_bias) const override {
    const ConvolutionSizes sizes = check_convolution_gradients(DeviceKind::cpu, x, dy, d_weight, d_bias);
    if (!Convolutions::can_do(x.dtype(), sizes))
      return ReferenceKernels::convolution_gradients(x, dy, d_weight, d_bias);
    convolutions_.gradients(sizes, x, dy, d_weight, d_bias);
  }

  void convolution_input_gradient(const TensorView& dy, const TensorView& weight, const TensorView& dx) const override {
    const ConvolutionSizes sizes = check_convolution_input_gradient(DeviceKind::cpu, dy, weight, dx);
    if (!Convolutions::can_do(dx.dtype(), sizes)) return ReferenceKernels::convolution_input_gradient(dy, weight, dx);
    convolutions_.input_gradient(sizes, dy, weight, dx);
  }

 private:
  Threads threads_;
  Convolutions convolutions_;
};

}  // namespace

bool onednn_is_built_in() {
  return true;
}

std::unique_ptr<Kernels> make_onednn_kernels(Threads threads) {
  return std::make_unique<OneDnnKernels>(threads);
}

}  // namespace lockstep::ops
