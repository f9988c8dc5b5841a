// Matrix products, convolutions and GELU by oneDNN, of f32 and, where the processor has instructions for it, of bf16;
// the reference does the rest.
#include <algorithm>
#include <vector>

#include <fmt/format.h>
#include <oneapi/dnnl/dnnl.h>

#include <lockstep/core/base/error.hpp>

#include "models/ops/backends.hpp"
#include "models/ops/checks.hpp"
#include "models/ops/onednn/convolutions.hpp"
#include "models/ops/onednn/gelu.hpp"
#include "models/ops/onednn/narrow_products.hpp"
#include "models/ops/onednn/threads.hpp"
#include "models/ops/product_tree.hpp"
#include "models/ops/reference/attention.hpp"
#include "models/ops/reference/loops.hpp"
#include "models/ops/reference/reference.hpp"
#include "models/ops/reference/stored.hpp"
#include "models/ops/sequence_checks.hpp"

namespace lockstep::ops {
namespace {

char letter(Kernels::Transpose transpose) {
  return transpose == Kernels::Transpose::yes ? 'T' : 'N';
}

/// c = scale * op(a) · op(b) + keep * c, for positive extents. If `keep` is zero, c is not read.
void multiply_or_add(const MatmulSizes& sizes, float scale, const Block<float>& a, Kernels::Transpose transpose_a,
                     const Block<float>& b, Kernels::Transpose transpose_b, float keep, const Block<float>& c) {
  const dnnl_status_t status = dnnl_sgemm(letter(transpose_a), letter(transpose_b), sizes.m, sizes.n, sizes.k, scale,
                                          a.data, a.stride, b.data, b.stride, keep, c.data, c.stride);
  if (status != dnnl_success)
    throw DeviceError{fmt::format("oneDNN failed with status {} on a product of {} x {} x {}", static_cast<int>(status),
                                  sizes.m, sizes.n, sizes.k)};
}

/// c = scale * op(a) · op(b), for positive extents.
void multiply_over(const MatmulSizes& sizes, float scale, const Block<float>& a, Kernels::Transpose transpose_a,
                   const Block<float>& b, Kernels::Transpose transpose_b, const Block<float>& c) {
  multiply_or_add(sizes, scale, a, transpose_a, b, transpose_b, 0, c);
}

/// The library is not called for nothing: it need not write a sum over no terms.
bool can_multiply(DType dtype, const MatmulSizes& sizes) {
  return dtype == DType::f32 && sizes.m > 0 && sizes.n > 0 && sizes.k > 0;
}

/// The same for bf16: there are extents, and instructions.
bool can_multiply_narrow(DType dtype, const MatmulSizes& sizes) {
  return dtype == DType::bf16 && can_multiply(DType::f32, sizes) && has_narrow_products();
}

bool can_gelu(const TensorView& x) {
  return x.count() > 0 && (x.dtype() == DType::f32 || (x.dtype() == DType::bf16 && has_narrow_products()));
}

/// Products of blocks of bf16, for attention.
class NarrowBlocks {
 public:
  explicit NarrowBlocks(const NarrowProducts& products) : products_{products} {}

  template <class C>
  void operator()(const MatmulSizes& sizes, float scale, const Block<BFloat16>& a, Kernels::Transpose transpose_a,
                  const Block<BFloat16>& b, Kernels::Transpose transpose_b, const Block<C>& c) const {
    const NarrowProduct product{.m = sizes.m,
                                .n = sizes.n,
                                .k = sizes.k,
                                .a_stride = a.stride,
                                .transpose_a = transpose_a,
                                .b_stride = b.stride,
                                .transpose_b = transpose_b,
                                .c_stride = c.stride,
                                .result = detail::dtype_of<C>,
                                .scale = scale};
    products_.multiply(product, a.data, b.data, nullptr, c.data);
  }

 private:
  const NarrowProducts& products_;
};

/// A block of rows of the products, small enough that it and what is added to it stay in the cache.
class BlockProducts {
 public:
  explicit BlockProducts(const TensorView& c)
      : c_{data<float>(c)}, rows_of_c_{c.shape()[0]}, columns_{c.shape()[1]}, rows_of_block_{rows_within(columns_)} {}

  /// The next block; null after the last.
  float* next() {
    first_ += rows_;
    const std::int64_t left = rows_of_c_ - first_;
    // Avoids a last block of a few rows, which the library might compute in another way.
    rows_ = left < 2 * rows_of_block_ ? left : rows_of_block_;
    return rows_ > 0 ? c_ + first_ * columns_ : nullptr;
  }

  void put(float* c, const Kernels::Factors& factors) const {
    multiply(factors, 0, c);
    if (factors.on_product) factors.on_product({reinterpret_cast<std::byte*>(c), {rows_, columns_}, DType::f32});
  }
  void add_product(float* c, const Kernels::Factors& factors) {
    if (!factors.on_product) return multiply(factors, 1, c);
    show(factors);
    add(c, shown_.data());
  }
  void show(const Kernels::Factors& factors) {
    if (shown_.empty()) shown_.resize(elements_of_block());
    put(shown_.data(), factors);
  }
  void add(float* c, const float* other) const { loops::add(c, other, rows_ * columns_); }
  float* spare(std::size_t level) {
    if (level < spare_.size()) return spare_[level].data();
    return spare_.emplace_back(elements_of_block()).data();
  }

 private:
  static std::int64_t rows_within(std::int64_t columns) {
    constexpr std::int64_t elements = 32 * 1024, fewest = 16;
    return std::max(fewest, elements / columns);
  }

  /// At most: the last block may have up to twice as many rows.
  std::size_t elements_of_block() const { return static_cast<std::size_t>(2 * rows_of_block_ * columns_); }

  void multiply(const Kernels::Factors& factors, float keep, float* c) const {
    multiply_or_add({rows_, columns_, factors.a.shape()[0]}, 1, {data<float>(factors.a) + first_, rows_of_c_},
                    Kernels::Transpose::yes, {data<float>(factors.b), columns_}, Kernels::Transpose::no, keep,
                    {c, columns_});
  }

  float* c_;
  std::int64_t rows_of_c_, columns_, rows_of_block_;
  std::int64_t first_ = 0, rows_ = 0;
  std::vector<std::vector<float>> spare_;
  std::vector<float> shown_;  ///< a product that is shown
};

class OneDnnImageKernels final : public ReferenceImageKernels {
 public:
  explicit OneDnnImageKernels(Kernels::Threads threads) : convolutions_{threads} {}

  void convolution(const TensorView& x, const TensorView& weight, const TensorView& bias,
                   Kernels::Activation activation, const TensorView& y) const override {
    const ConvolutionSizes sizes = check_convolution(DeviceKind::cpu, x, weight, bias, y);
    if (!Convolutions::can_do(y.dtype(), sizes))
      return ReferenceImageKernels::convolution(x, weight, bias, activation, y);
    convolutions_.forward(sizes, x, weight, bias, y);
    // Not the library's ReLU, which would turn a NaN into 0. Rounding before it changes nothing.
    if (activation != Kernels::Activation::relu) return;
    if (y.dtype() == DType::f32) return loops::relu(data<float>(y), data<float>(y), y.count());
    const auto relu = [](std::int64_t n, float* to, const float* from) { loops::relu(from, to, n); };
    map_elements(y.count(), data<BFloat16>(y), relu, data<BFloat16>(y));
  }

  void convolution_gradients(const TensorView& x, const TensorView& dy, const TensorView& d_weight,
                             const TensorView& d_bias) const override {
    const ConvolutionSizes sizes = check_convolution_gradients(DeviceKind::cpu, x, dy, d_weight, d_bias);
    if (!Convolutions::can_do(x.dtype(), sizes))
      return ReferenceImageKernels::convolution_gradients(x, dy, d_weight, d_bias);
    convolutions_.gradients(sizes, x, dy, d_weight, d_bias);
  }

  void convolution_input_gradient(const TensorView& dy, const TensorView& weight, const TensorView& dx) const override {
    const ConvolutionSizes sizes = check_convolution_input_gradient(DeviceKind::cpu, dy, weight, dx);
    if (!Convolutions::can_do(dx.dtype(), sizes))
      return ReferenceImageKernels::convolution_input_gradient(dy, weight, dx);
    convolutions_.input_gradient(sizes, dy, weight, dx);
  }

 private:
  Convolutions convolutions_;
};

class OneDnnSequenceKernels final : public ReferenceSequenceKernels {
 public:
  explicit OneDnnSequenceKernels(Kernels::Threads threads)
      : ReferenceSequenceKernels{Functions::of_library}, threads_{threads} {}

  void gelu(const TensorView& x, const TensorView& y) const override {
    check_same_or_apart(DeviceKind::cpu, "gelu", x, y);
    if (!can_gelu(x)) return ReferenceSequenceKernels::gelu(x, y);
    const OpenMpThreads threads{threads_};
    onednn::gelu(x, y);
  }

  void gelu_gradient(const TensorView& x, const TensorView& dy, const TensorView& dx) const override {
    check_gelu_gradient(DeviceKind::cpu, x, dy, dx);
    if (!can_gelu(x)) return ReferenceSequenceKernels::gelu_gradient(x, dy, dx);
    const OpenMpThreads threads{threads_};
    onednn::gelu_gradient(x, dy, dx);
  }

  void causal_attention(const CausalAttention& operands) const override {
    const AttentionSizes sizes = check_attention(DeviceKind::cpu, kept_scores(), operands);
    const DType dtype = operands.qkv.dtype();
    if (dtype == DType::f64 || operands.qkv.count() == 0) return ReferenceSequenceKernels::causal_attention(operands);
    const OpenMpThreads threads{threads_};
    if (dtype == DType::f32) return attend<LibraryFunctions, float>(sizes, operands, multiply_over);
    if (has_narrow_products()) return attend<LibraryFunctions, BFloat16>(sizes, operands, NarrowBlocks{products_});
    attend<LibraryFunctions, BFloat16>(sizes, operands, Widening{multiply_over});
  }

  void causal_attention_gradient(const CausalAttentionGradient& operands) const override {
    const AttentionSizes sizes = check_attention(DeviceKind::cpu, kept_scores(), operands);
    const DType dtype = operands.qkv.dtype();
    if (dtype == DType::f64 || operands.qkv.count() == 0)
      return ReferenceSequenceKernels::causal_attention_gradient(operands);
    const OpenMpThreads threads{threads_};
    if (dtype == DType::f32) return attend_gradient<float>(sizes, operands, multiply_over);
    if (has_narrow_products()) return attend_gradient<BFloat16>(sizes, operands, NarrowBlocks{products_});
    attend_gradient<BFloat16>(sizes, operands, Widening{multiply_over});
  }

 private:
  Kernels::Threads threads_;
  NarrowProducts products_{threads_};
};

class OneDnnKernels final : public ReferenceKernels {
 public:
  explicit OneDnnKernels(Kernels::Threads threads)
      : ReferenceKernels{Functions::of_library},
        threads_{threads},
        narrow_{threads},
        image_{threads},
        sequence_{threads} {
    reset_modes_of_threads(threads);
  }

  const ImageKernels& image() const override { return image_; }
  const SequenceKernels& sequence() const override { return sequence_; }

  std::string_view name() const override { return "oneDNN"; }

  std::string fingerprint() const override {
    const dnnl_version_t& version = *dnnl_version();
    return fmt::format("oneDNN {}.{}.{}, instruction set {:#x}, {} thread{}", version.major, version.minor,
                       version.patch, static_cast<unsigned>(dnnl_get_effective_cpu_isa()), threads_.count,
                       threads_.count == 1 ? "" : "s");
  }

  void matmul(const Matrix& a, Kernels::Transpose transpose_a, const Matrix& b, Kernels::Transpose transpose_b,
              const Matrix& c) const override {
    const MatmulSizes sizes = check_matmul(DeviceKind::cpu, a, transpose_a, b, transpose_b, c);
    if (can_multiply_narrow(a.view.dtype(), sizes))
      return narrow_.multiply(narrow_product(sizes, a, transpose_a, b, transpose_b, c), data<BFloat16>(a.view),
                              data<BFloat16>(b.view), nullptr, c.view.data());
    if (!can_multiply(a.view.dtype(), sizes)) return ReferenceKernels::matmul(a, transpose_a, b, transpose_b, c);
    const OpenMpThreads threads{threads_};
    multiply_over(sizes, 1, {data<float>(a.view), a.stride()}, transpose_a, {data<float>(b.view), b.stride()},
                  transpose_b, {data<float>(c.view), c.stride()});
  }

  void sum_of_products(std::span<const Kernels::Factors> factors, const TensorView& c) const override {
    check_sum_of_products(DeviceKind::cpu, factors, c);
    const auto can = [&](const Kernels::Factors& each) {
      return can_multiply(each.a.dtype(), {c.shape()[0], c.shape()[1], each.a.shape()[0]});
    };
    if (!std::ranges::all_of(factors, can)) return ReferenceKernels::sum_of_products(factors, c);
    if (factors.size() == 1 && !factors.front().on_product) return put_whole(*this, c, factors.front());
    const OpenMpThreads threads{threads_};
    BlockProducts block{c};
    while (float* const rows = block.next()) add_up_products(block, factors, rows);
  }

  void linear(const TensorView& x, const TensorView& weight, const TensorView& bias, Kernels::Activation activation,
              const TensorView& y) const override {
    const MatmulSizes sizes = check_linear(DeviceKind::cpu, x, weight, bias, y);
    if (!can_multiply_narrow(x.dtype(), sizes)) return ReferenceKernels::linear(x, weight, bias, activation, y);
    NarrowProduct product = narrow_product(sizes, x, Kernels::Transpose::no, weight, Kernels::Transpose::no, y);
    product.has_bias = true;
    narrow_.multiply(product, data<BFloat16>(x), data<BFloat16>(weight), data<float>(bias), y.data());
    // Not the library's ReLU, which would turn a NaN into 0. Rounding before it changes nothing.
    if (activation == Kernels::Activation::relu) relu(y, y);
  }

 private:
  static NarrowProduct narrow_product(const MatmulSizes& sizes, const Matrix& a, Kernels::Transpose transpose_a,
                                      const Matrix& b, Kernels::Transpose transpose_b, const Matrix& c) {
    return {.m = sizes.m,
            .n = sizes.n,
            .k = sizes.k,
            .a_stride = a.stride(),
            .transpose_a = transpose_a,
            .b_stride = b.stride(),
            .transpose_b = transpose_b,
            .c_stride = c.stride(),
            .result = c.view.dtype()};
  }

  Kernels::Threads threads_;
  NarrowProducts narrow_;
  OneDnnImageKernels image_;
  OneDnnSequenceKernels sequence_;
};

}  // namespace

bool onednn_is_built_in() {
  return true;
}

std::unique_ptr<Kernels> make_onednn_kernels(Kernels::Threads threads) {
  return std::make_unique<OneDnnKernels>(threads);
}

void end_kernel_threads() {
  (void)omp_pause_resource_all(omp_pause_hard);
}

}  // namespace lockstep::ops
