#include "cublaslt/objects.hpp"

#include <cstring>

namespace cusim::cublaslt {
namespace {

template <class Stored>
cublasStatus_t store(Stored& stored, const void* from, std::size_t bytes) {
  if (!from || bytes != sizeof stored) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(&stored, from, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

[[noreturn]] void not_simulated(const char* call, int attribute) {
  found(std::string{call} + ": attribute " + std::to_string(attribute) + " is not simulated");
}

/// Never destroyed: handles may be destroyed by destructors of static objects.
template <class Object, class Handle>
Alive<Object, Handle>& only(const char* noun) {
  static auto* const alive = new Alive<Object, Handle>{noun};
  return *alive;
}

}  // namespace

Alive<Library, cublasLtHandle_t>& libraries() {
  return only<Library, cublasLtHandle_t>("library handle");
}
Alive<Description, cublasLtMatmulDesc_t>& descriptions() {
  return only<Description, cublasLtMatmulDesc_t>("operation descriptor");
}
Alive<Layout, cublasLtMatrixLayout_t>& layouts() {
  return only<Layout, cublasLtMatrixLayout_t>("layout descriptor");
}
Alive<Preference, cublasLtMatmulPreference_t>& preferences() {
  return only<Preference, cublasLtMatmulPreference_t>("preference descriptor");
}

cublasStatus_t begin_call(const char* call, FaultKind* fault) {
  count(call);
  const FaultKind kind = fault_at(call);
  if (fault) *fault = kind;
  switch (kind) {
    case FaultKind::none:
    case FaultKind::late: return CUBLAS_STATUS_SUCCESS;
    case FaultKind::error:
      return fault_code() == 0 ? CUBLAS_STATUS_EXECUTION_FAILED : static_cast<cublasStatus_t>(fault_code());
    case FaultKind::memory: return CUBLAS_STATUS_ALLOC_FAILED;
    case FaultKind::hang: break;
  }
  if (!fault) hang();
  return CUBLAS_STATUS_SUCCESS;
}

}  // namespace cusim::cublaslt

using namespace cusim::cublaslt;

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* made, cublasComputeType_t compute, cudaDataType_t scale) {
  if (const auto status = begin_call("cublasLtMatmulDescCreate"); status != CUBLAS_STATUS_SUCCESS) return status;
  if (!made) return CUBLAS_STATUS_INVALID_VALUE;
  *made = descriptions().add({.compute = compute, .scale = scale});
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t handle) {
  if (const auto status = begin_call("cublasLtMatmulDescDestroy"); status != CUBLAS_STATUS_SUCCESS) return status;
  if (handle) descriptions().remove(handle, "cublasLtMatmulDescDestroy");
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t handle, cublasLtMatmulDescAttributes_t attribute,
                                              const void* from, std::size_t bytes) {
  constexpr const char* call = "cublasLtMatmulDescSetAttribute";
  if (const auto status = begin_call(call); status != CUBLAS_STATUS_SUCCESS) return status;
  if (!handle) return CUBLAS_STATUS_INVALID_VALUE;
  Description& description = descriptions().at(handle, call);
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_COMPUTE_TYPE: return store(description.compute, from, bytes);
    case CUBLASLT_MATMUL_DESC_SCALE_TYPE: return store(description.scale, from, bytes);
    case CUBLASLT_MATMUL_DESC_POINTER_MODE: return store(description.pointer_mode, from, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSA: return store(description.transpose_a, from, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB: return store(description.transpose_b, from, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSC: return store(description.transpose_c, from, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE: return store(description.epilogue, from, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER: return store(description.bias, from, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE: return store(description.bias_batch_stride, from, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE: return store(description.bias_type, from, bytes);
  }
  not_simulated(call, attribute);
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* made, cudaDataType type, std::uint64_t rows,
                                          std::uint64_t columns, std::int64_t leading) {
  if (const auto status = begin_call("cublasLtMatrixLayoutCreate"); status != CUBLAS_STATUS_SUCCESS) return status;
  if (!made) return CUBLAS_STATUS_INVALID_VALUE;
  *made = layouts().add({.type = type, .rows = rows, .columns = columns, .leading = leading});
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t handle) {
  if (const auto status = begin_call("cublasLtMatrixLayoutDestroy"); status != CUBLAS_STATUS_SUCCESS) return status;
  if (handle) layouts().remove(handle, "cublasLtMatrixLayoutDestroy");
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t handle,
                                                cublasLtMatrixLayoutAttribute_t attribute, const void* from,
                                                std::size_t bytes) {
  constexpr const char* call = "cublasLtMatrixLayoutSetAttribute";
  if (const auto status = begin_call(call); status != CUBLAS_STATUS_SUCCESS) return status;
  if (!handle) return CUBLAS_STATUS_INVALID_VALUE;
  Layout& layout = layouts().at(handle, call);
  switch (attribute) {
    case CUBLASLT_MATRIX_LAYOUT_TYPE: return store(layout.type, from, bytes);
    case CUBLASLT_MATRIX_LAYOUT_ORDER: return store(layout.order, from, bytes);
    case CUBLASLT_MATRIX_LAYOUT_ROWS: return store(layout.rows, from, bytes);
    case CUBLASLT_MATRIX_LAYOUT_COLS: return store(layout.columns, from, bytes);
    case CUBLASLT_MATRIX_LAYOUT_LD: return store(layout.leading, from, bytes);
    case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT: return store(layout.batch, from, bytes);
    case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET: return store(layout.batch_stride, from, bytes);
  }
  not_simulated(call, attribute);
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* made) {
  if (const auto status = begin_call("cublasLtMatmulPreferenceCreate"); status != CUBLAS_STATUS_SUCCESS) return status;
  if (!made) return CUBLAS_STATUS_INVALID_VALUE;
  *made = preferences().add({});
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t handle) {
  if (const auto status = begin_call("cublasLtMatmulPreferenceDestroy"); status != CUBLAS_STATUS_SUCCESS) return status;
  if (handle) preferences().remove(handle, "cublasLtMatmulPreferenceDestroy");
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t handle,
                                                    cublasLtMatmulPreferenceAttributes_t attribute, const void* from,
                                                    std::size_t bytes) {
  constexpr const char* call = "cublasLtMatmulPreferenceSetAttribute";
  if (const auto status = begin_call(call); status != CUBLAS_STATUS_SUCCESS) return status;
  if (!handle) return CUBLAS_STATUS_INVALID_VALUE;
  Preference& preference = preferences().at(handle, call);
  switch (attribute) {
    case CUBLASLT_MATMUL_PREF_SEARCH_MODE: return store(preference.search_mode, from, bytes);
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES: return store(preference.most_workspace, from, bytes);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK: return store(preference.schemes, from, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES: return store(preference.alignment_a, from, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES: return store(preference.alignment_b, from, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES: return store(preference.alignment_c, from, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES: return store(preference.alignment_d, from, bytes);
  }
  not_simulated(call, attribute);
}
