// cublasLtMatmul and the choice of its algorithm.
#include <algorithm>

#include "cublaslt/algorithms.hpp"
#include "cublaslt/execution.hpp"
#include "cublaslt/objects.hpp"
#include "cublaslt/operands.hpp"
#include "cublaslt/product.hpp"

using namespace cusim;
using namespace cusim::cublaslt;

namespace {

struct Handles {
  cublasLtHandle_t library;
  cublasLtMatmulDesc_t description;
  cublasLtMatrixLayout_t a;
  cublasLtMatrixLayout_t b;
  cublasLtMatrixLayout_t c;
  cublasLtMatrixLayout_t d;
};

cublasStatus_t read(const Handles& handles, const char* call, Product& product) {
  if (!handles.library) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (!handles.description || !handles.a || !handles.b || !handles.c || !handles.d) return CUBLAS_STATUS_INVALID_VALUE;
  if (libraries().at(handles.library, call).device != current_device())
    found(std::string{call} + ": the library handle belongs to another device than the current one");
  return read_product(descriptions().at(handles.description, call), layouts().at(handles.a, call),
                      layouts().at(handles.b, call), layouts().at(handles.c, call), layouts().at(handles.d, call),
                      product);
}

/// alpha or beta.
double factor_at(const void* address, const Product& product, const char* name) {
  if (memory_at(address).kind == MemoryKind::device)
    found(std::string{"cublasLtMatmul: "} + name + " is in the GPU's memory, and the pointer mode is host");
  return in_f64(product) ? *static_cast<const double*>(address) : double{*static_cast<const float*>(address)};
}

/// The library's own choice, for a call without an algorithm.
bool choose(const Product& product, const Operands& operands, Algorithm& algorithm) {
  const auto aligned = [](const void* address) { return static_cast<std::uint32_t>(alignment_of(address)); };
  const Preference preference{.most_workspace = operands.workspace_bytes,
                              .alignment_a = aligned(operands.a),
                              .alignment_b = aligned(operands.b),
                              .alignment_c = operands.c ? aligned(operands.c) : 256,
                              .alignment_d = aligned(operands.d)};
  const auto all = algorithms_for(product, preference, operands.bias ? alignment_of(operands.bias) : 256);
  if (all.empty()) return false;
  algorithm = all.front();
  return true;
}

}  // namespace

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t library, cublasLtMatmulDesc_t description,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int wanted,
                                              cublasLtMatmulHeuristicResult_t results[], int* returned) {
  constexpr const char* call = "cublasLtMatmulAlgoGetHeuristic";
  if (const auto status = begin_call(call); status != CUBLAS_STATUS_SUCCESS) return status;
  if (!preference || wanted < 1 || !results || !returned) return CUBLAS_STATUS_INVALID_VALUE;
  *returned = 0;
  Product product;
  if (const auto status = read({library, description, a, b, c, d}, call, product); status != CUBLAS_STATUS_SUCCESS)
    return status;
  const Preference& limits = preferences().at(preference, call);
  if (limits.search_mode != CUBLASLT_SEARCH_BEST_FIT) return CUBLAS_STATUS_NOT_SUPPORTED;
  const void* const bias = descriptions().at(description, call).bias;
  const auto all = algorithms_for(product, limits, product.adds_bias ? alignment_of(bias) : 256);
  if (all.empty()) return CUBLAS_STATUS_NOT_SUPPORTED;

  // Some answers begin with one that its state says not to use; only the last place is never such a one.
  const bool begins_with_failure = wanted > 1 && mix(settings().seed, key_of(product)) % 4 == 0;
  int count = 0;
  if (begins_with_failure) {
    results[count] = {};
    results[count++].state = CUBLAS_STATUS_NOT_SUPPORTED;
  }
  for (const Algorithm& algorithm : all) {
    if (count == wanted) break;
    results[count++] = {.algo = seal(algorithm),
                        .workspaceSize = static_cast<std::size_t>(algorithm.workspace_bytes),
                        .state = CUBLAS_STATUS_SUCCESS,
                        .wavesCount = 1,
                        .reserved = {}};
  }
  *returned = count;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t library, cublasLtMatmulDesc_t description, const void* alpha,
                              const void* a, cublasLtMatrixLayout_t a_layout, const void* b,
                              cublasLtMatrixLayout_t b_layout, const void* beta, const void* c,
                              cublasLtMatrixLayout_t c_layout, void* d, cublasLtMatrixLayout_t d_layout,
                              const cublasLtMatmulAlgo_t* algo, void* workspace, std::size_t workspace_bytes,
                              cudaStream_t stream) {
  constexpr const char* name = "cublasLtMatmul";
  MatmulCall call{};
  if (const auto status = begin_call(name, &call.fault); status != CUBLAS_STATUS_SUCCESS) return status;
  if (late_failure() != cudaSuccess) return CUBLAS_STATUS_EXECUTION_FAILED;
  if (const auto status = read({library, description, a_layout, b_layout, c_layout, d_layout}, name, call.product);
      status != CUBLAS_STATUS_SUCCESS)
    return status;
  if (!alpha || !beta || !a || !b || !c || !d || (workspace_bytes > 0 && !workspace))
    return CUBLAS_STATUS_INVALID_VALUE;
  const Description& described = descriptions().at(description, name);
  if ((described.epilogue & CUBLASLT_EPILOGUE_BIAS) && !described.bias) return CUBLAS_STATUS_INVALID_VALUE;
  call.alpha = factor_at(alpha, call.product, "alpha");
  call.beta = factor_at(beta, call.product, "beta");
  call.operands = {.a = static_cast<const std::byte*>(a),
                   .b = static_cast<const std::byte*>(b),
                   .c = call.beta == 0 ? nullptr : static_cast<const std::byte*>(c),
                   .d = static_cast<std::byte*>(d),
                   .bias = call.product.adds_bias ? static_cast<const std::byte*>(described.bias) : nullptr,
                   .workspace = static_cast<std::byte*>(workspace),
                   .workspace_bytes = workspace_bytes};

  if (!algo) {
    if (!choose(call.product, call.operands, call.algorithm)) return CUBLAS_STATUS_NOT_SUPPORTED;
  } else if (!open(*algo, call.algorithm) || call.algorithm.product != key_of(call.product)) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  if (call.algorithm.workspace_bytes > workspace_bytes) return CUBLAS_STATUS_INVALID_VALUE;
  check_operands(call.product, call.operands, call.algorithm);
  return enqueue_matmul(call, stream) == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}
