// cuBLASLt: its functions, checked calls of them, and owners of its handles.
#pragma once

#include <utility>

#include <cublasLt.h>

#include "core/device/device_call.hpp"

namespace lockstep::ops::cuda {

/// The functions in use. Loading the library takes a process a tenth of a second and 100 MB, so only a process that
/// multiplies on a GPU does.
struct CublasLt {
  decltype(&cublasLtCreate) create;
  decltype(&cublasLtDestroy) destroy;
  decltype(&cublasLtGetStatusName) status_name;
  decltype(&cublasLtGetStatusString) status_string;
  decltype(&cublasLtGetVersion) version;
  decltype(&cublasLtMatmul) matmul;
  decltype(&cublasLtMatmulAlgoGetHeuristic) matmul_algo_get_heuristic;
  decltype(&cublasLtMatmulDescCreate) matmul_desc_create;
  decltype(&cublasLtMatmulDescDestroy) matmul_desc_destroy;
  decltype(&cublasLtMatmulDescSetAttribute) matmul_desc_set_attribute;
  decltype(&cublasLtMatmulPreferenceCreate) matmul_preference_create;
  decltype(&cublasLtMatmulPreferenceDestroy) matmul_preference_destroy;
  decltype(&cublasLtMatmulPreferenceSetAttribute) matmul_preference_set_attribute;
  decltype(&cublasLtMatrixLayoutCreate) matrix_layout_create;
  decltype(&cublasLtMatrixLayoutDestroy) matrix_layout_destroy;
  decltype(&cublasLtMatrixLayoutSetAttribute) matrix_layout_set_attribute;
};

/// The functions, for one call of one of them.
class [[nodiscard]] CublasLtCall {
 public:
  explicit CublasLtCall(const CublasLt& functions) : functions_{functions} {}
  const CublasLt& operator*() const { return functions_; }
  const CublasLt* operator->() const { return &functions_; }

 private:
  const CublasLt& functions_;
  lockstep::detail::DeviceCall call_;
};

/// The first call loads the library. DeviceError if it cannot.
CublasLtCall cublas_lt();

/// DeviceError unless `status` is success. `call` names the function called; the message adds the library's text, the
/// device and the rank.
void check_cublas(cublasStatus_t status, const char* call);

/// Owns a handle that `create` or the like made, and destroys it.
template <class Handle, cublasStatus_t (*CublasLt::*destroy)(Handle)>
class Owned {
 public:
  Owned() = default;
  Owned(Owned&& other) noexcept : handle_{std::exchange(other.handle_, nullptr)} {}
  Owned& operator=(Owned&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Owned() {
    if (handle_) (void)((*cublas_lt()).*destroy)(handle_);
  }

  Handle get() const { return handle_; }

  /// Where the creating call writes the handle. Only while there is none.
  Handle* to_fill() { return &handle_; }

 private:
  Handle handle_ = nullptr;
};

using LibraryHandle = Owned<cublasLtHandle_t, &CublasLt::destroy>;
using Operation = Owned<cublasLtMatmulDesc_t, &CublasLt::matmul_desc_destroy>;
using Layout = Owned<cublasLtMatrixLayout_t, &CublasLt::matrix_layout_destroy>;
using Preference = Owned<cublasLtMatmulPreference_t, &CublasLt::matmul_preference_destroy>;

}  // namespace lockstep::ops::cuda
