#include "models/ops/cuda/products.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <tuple>

#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>

#include "core/base/element_type.hpp"
#include "core/device/cuda/native.hpp"
#include "core/device/device.hpp"
#include "models/ops/cuda/aligned.hpp"

namespace lockstep::ops::cuda {
namespace {

using lockstep::detail::check_cuda;
using lockstep::detail::native;

/// NVIDIA's recommendation for Hopper, which needs the most.
constexpr std::size_t workspace_bytes = 32 << 20;

cudaDataType_t data_type(DType dtype) {
  return dtype == DType::bf16 ? CUDA_R_16BF : dtype == DType::f32 ? CUDA_R_32F : CUDA_R_64F;
}

cublasOperation_t operation(Kernels::Transpose transpose) {
  return transpose == Kernels::Transpose::yes ? CUBLAS_OP_T : CUBLAS_OP_N;
}

template <class Value>
void set(const Operation& operation, cublasLtMatmulDescAttributes_t attribute, const Value& value) {
  check_cublas(cublas_lt()->matmul_desc_set_attribute(operation.get(), attribute, &value, sizeof value),
               "cublasLtMatmulDescSetAttribute");
}

template <class Value>
void set(const Preference& preference, cublasLtMatmulPreferenceAttributes_t attribute, const Value& value) {
  check_cublas(cublas_lt()->matmul_preference_set_attribute(preference.get(), attribute, &value, sizeof value),
               "cublasLtMatmulPreferenceSetAttribute");
}

Operation make_operation(DType sums, const ColumnMajorProduct& product, Epilogue epilogue) {
  Operation made;
  // The default compute types keep full precision; TF32 and the like are separate types.
  const cublasComputeType_t compute_type = sums == DType::f32 ? CUBLAS_COMPUTE_32F : CUBLAS_COMPUTE_64F;
  check_cublas(cublas_lt()->matmul_desc_create(made.to_fill(), compute_type, data_type(sums)),
               "cublasLtMatmulDescCreate");
  set(made, CUBLASLT_MATMUL_DESC_TRANSA, operation(product.transpose_first));
  set(made, CUBLASLT_MATMUL_DESC_TRANSB, operation(product.transpose_second));
  switch (epilogue) {
    case Epilogue::none: break;
    case Epilogue::bias: set(made, CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS); break;
    case Epilogue::bias_relu: set(made, CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_RELU_BIAS); break;
  }
  return made;
}

template <class Value>
void set(const Layout& layout, cublasLtMatrixLayoutAttribute_t attribute, const Value& value) {
  check_cublas(cublas_lt()->matrix_layout_set_attribute(layout.get(), attribute, &value, sizeof value),
               "cublasLtMatrixLayoutSetAttribute");
}

/// `count` matrices, each `stride` elements behind the one before it.
Layout make_layout(DType dtype, const ColumnMajor& matrix, std::int64_t count, std::int64_t stride) {
  Layout made;
  check_cublas(
      cublas_lt()->matrix_layout_create(made.to_fill(), data_type(dtype), static_cast<std::uint64_t>(matrix.rows),
                                        static_cast<std::uint64_t>(matrix.columns), matrix.leading),
      "cublasLtMatrixLayoutCreate");
  if (count > 1) {
    set(made, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, static_cast<std::int32_t>(count));
    set(made, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, stride);
  }
  return made;
}

/// The alignment of matrices that lie at multiples of `stride` elements from an aligned address.
std::uint32_t alignment_at(std::int64_t stride, DType dtype) {
  const std::uint64_t bytes = static_cast<std::uint64_t>(stride) * size_of(dtype);
  const std::uint64_t lowest_bit = bytes & (~bytes + 1);
  return static_cast<std::uint32_t>(lowest_bit == 0 ? operand_alignment
                                                    : std::min<std::uint64_t>(operand_alignment, lowest_bit));
}

Preference make_preference(const ProductTypes& types, const Strides& strides) {
  Preference made;
  check_cublas(cublas_lt()->matmul_preference_create(made.to_fill()), "cublasLtMatmulPreferenceCreate");
  set(made, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, std::uint64_t{workspace_bytes});
  // A sum that is split among blocks may be completed by a second step, from parts in the workspace, in one order. In
  // place, the blocks add their parts to the output one at a time, in an order that is not specified
  // (cublasLtReductionScheme_t in cuBLAS's documentation) and has been seen to change from run to run.
  // Parts of the output's type would be rounded to bf16 one by one.
  const std::uint32_t excluded =
      CUBLASLT_REDUCTION_SCHEME_INPLACE | (types.result == DType::bf16 ? CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE : 0);
  set(made, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, std::uint32_t{CUBLASLT_REDUCTION_SCHEME_MASK} & ~excluded);
  set(made, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment_at(strides.b, types.operands));
  set(made, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment_at(strides.a, types.operands));
  set(made, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment_at(strides.c, types.result));
  set(made, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment_at(strides.c, types.result));
  return made;
}

template <class T>
bool all_nan(const TensorView& view, Stream& stream) {
  std::vector<T> values(static_cast<std::size_t>(view.count()));
  stream.copy(values.data(), view.data(), view.bytes());
  stream.synchronize();
  return std::all_of(values.begin(), values.end(), [](T value) { return std::isnan(value); });
}

}  // namespace

std::string library_version() {
  const std::size_t version = cublas_lt()->version();
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

bool Products::Key::operator<(const Key& other) const {
  const auto tied = [](const Key& key) {
    return std::tie(key.sizes.m, key.sizes.n, key.sizes.k, key.transpose_a, key.transpose_b, key.types.operands,
                    key.types.result, key.epilogue, key.row_strides.a, key.row_strides.b, key.row_strides.c, key.count,
                    key.strides.a, key.strides.b, key.strides.c);
  };
  return tied(*this) < tied(other);
}

Products::Products(Stream& stream) : stream_{stream} {
  (void)native(stream_);  // the library's handle belongs to the GPU that is current
  check_cublas(cublas_lt()->create(library_.to_fill()), "cublasLtCreate");
  workspace_ = inside(stream_).allocate(workspace_bytes);
}

bool Products::multiply(const ProductCall& call, Epilogue epilogue) const {
  const std::lock_guard lock{mutex_};
  const Key key{call.sizes,       call.transpose_a,
                call.transpose_b, {call.a.view.dtype(), call.c.view.dtype()},
                epilogue,         {call.a.stride(), call.b.stride(), call.c.stride()}};
  const std::optional<Plan>& plan = plan_of(key);
  if (!plan) {
    if (epilogue != Epilogue::none) return false;
    throw DeviceError{fmt::format("cuBLASLt {} has no algorithm for the product of {} and {}", library_version(),
                                  describe(call.a.view), describe(call.b.view))};
  }
  const Aligned a = Aligned::read(call.a.view, stream_);
  const Aligned b = Aligned::read(call.b.view, stream_);
  // A copy back includes the padding.
  const bool is_padded = call.c.columns < call.c.stride();
  const Aligned c = is_padded ? Aligned::read(call.c.view, stream_) : Aligned::written(call.c.view, stream_);
  if (epilogue == Epilogue::none) {
    run(*plan, {.first = b.data(), .second = a.data(), .result = c.data()});
  } else {
    const Aligned bias = Aligned::read(call.bias, stream_);
    run(*plan, {.first = b.data(), .second = a.data(), .bias = bias.data(), .result = c.data()});
  }
  c.settle(stream_);
  return true;
}

void Products::multiply(const BatchCall& call) const {
  const std::lock_guard lock{mutex_};
  const auto& [m, n, k] = call.sizes;
  const std::optional<Plan>& plan = plan_of({call.sizes, call.transpose_a, call.transpose_b, call.types, Epilogue::none,
                                             call.row_strides, call.count, call.strides});
  if (!plan)
    throw DeviceError{fmt::format("cuBLASLt {} has no algorithm for {} products of {} [{}, {}] and [{}, {}]",
                                  library_version(), call.count, name_of(call.types.operands), m, k, k, n)};
  run(*plan, {.first = call.b, .second = call.a, .result = call.c, .scale = call.scale});
}

const std::optional<Products::Plan>& Products::plan_of(const Key& key) const {
  const auto found = plans_.find(key);
  return found != plans_.end() ? found->second : plans_.emplace(key, make_plan(key)).first->second;
}

std::optional<Products::Plan> Products::make_plan(const Key& key) const {
  (void)native(stream_);
  const ColumnMajorProduct product = column_major(key.sizes, key.transpose_a, key.transpose_b, key.row_strides);
  const auto& [operands, result] = key.types;
  const DType sums = sum_type(operands);
  Plan plan{.sums = sums,
            .operation = make_operation(sums, product, key.epilogue),
            .first = make_layout(operands, product.first, key.count, key.strides.b),
            .second = make_layout(operands, product.second, key.count, key.strides.a),
            .result = make_layout(result, product.result, key.count, key.strides.c),
            .algorithm = {}};
  // The library reads the alignment of the bias from its address; without an address it assumes that there is no bias.
  // This address has the least alignment of all that it will get.
  if (key.epilogue != Epilogue::none) {
    const void* const least_aligned = workspace_.data() + operand_alignment;
    set(plan.operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, least_aligned);
  }

  std::array<cublasLtMatmulHeuristicResult_t, 4> best{};
  int found = 0;
  const cublasStatus_t status = cublas_lt()->matmul_algo_get_heuristic(
      library_.get(), plan.operation.get(), plan.first.get(), plan.second.get(), plan.result.get(), plan.result.get(),
      make_preference(key.types, key.strides).get(), static_cast<int>(best.size()), best.data(), &found);
  if (status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE) return std::nullopt;
  check_cublas(status, "cublasLtMatmulAlgoGetHeuristic");
  const auto end = best.begin() + found;
  const auto first =
      std::find_if(best.begin(), end, [](const auto& each) { return each.state == CUBLAS_STATUS_SUCCESS; });
  if (first == end) return std::nullopt;
  plan.algorithm = first->algo;
  if (key.epilogue == Epilogue::bias_relu && !lets_nan_through(key, plan)) return std::nullopt;
  return plan;
}

bool Products::lets_nan_through(const Key& key, const Plan& plan) const {
  const auto& [m, n, k] = key.sizes;
  const auto& [operands, result] = key.types;
  const Tensor a = Tensor::zeros(operands, {m, k}, stream_);
  const Tensor b = Tensor::zeros(operands, {k, n}, stream_);
  const Tensor bias = Tensor::zeros(result, {n}, stream_);
  const Tensor c = Tensor::zeros(result, {m, n}, stream_);
  // All bits set make a NaN.
  check_cuda(cudaMemsetAsync(bias.view().data(), 0xff, bias.view().bytes(), native(stream_)), "cudaMemsetAsync");
  run(plan,
      {.first = b.view().data(), .second = a.view().data(), .bias = bias.view().data(), .result = c.view().data()});
  return result == DType::f32 ? all_nan<float>(c.view(), stream_) : all_nan<double>(c.view(), stream_);
}

void Products::run(const Plan& plan, const Operands& operands) const {
  const auto& [first, second, bias, result, scale] = operands;
  if (bias) set(plan.operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
  const auto scale_f32 = static_cast<float>(scale);
  constexpr float zero_f32 = 0;
  constexpr double zero_f64 = 0;
  const bool f32 = plan.sums == DType::f32;
  const void* const factor = f32 ? static_cast<const void*>(&scale_f32) : &scale;
  const void* const zero = f32 ? static_cast<const void*>(&zero_f32) : &zero_f64;
  // Multiplied by zero, the old content of the result is not read.
  check_cublas(cublas_lt()->matmul(library_.get(), plan.operation.get(), factor, first, plan.first.get(), second,
                                   plan.second.get(), zero, result, plan.result.get(), result, plan.result.get(),
                                   &plan.algorithm, workspace_.data(), workspace_.bytes(), native(stream_)),
               "cublasLtMatmul");
}

}  // namespace lockstep::ops::cuda
