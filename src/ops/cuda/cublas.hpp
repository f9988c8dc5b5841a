// Checked calls of cuBLASLt, and owners of its handles.
#pragma once

#include <utility>

#include <cublasLt.h>

namespace lockstep::ops::cuda {

/// DeviceError unless `status` is success. `call` names the function called; the message adds the library's text, the
/// device and the rank.
void check_cublas(cublasStatus_t status, const char* call);

/// Owns a handle that `create` or the like made, and destroys it.
template <class Handle, cublasStatus_t (*destroy)(Handle)>
class Owned {
 public:
  Owned() = default;
  Owned(Owned&& other) noexcept : handle_{std::exchange(other.handle_, nullptr)} {}
  Owned& operator=(Owned&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Owned() {
    if (handle_) (void)destroy(handle_);
  }

  Handle get() const { return handle_; }

  /// Where the creating call writes the handle. Only while there is none.
  Handle* to_fill() { return &handle_; }

 private:
  Handle handle_ = nullptr;
};

using LibraryHandle = Owned<cublasLtHandle_t, cublasLtDestroy>;
using Operation = Owned<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy>;
using Layout = Owned<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>;
using Preference = Owned<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy>;

}  // namespace lockstep::ops::cuda
