#include "models/ops/cuda/cublas.hpp"

#include <string>
#include <utility>

#include <dlfcn.h>
#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>

#include "core/device/cuda/native.hpp"

namespace lockstep::ops::cuda {
namespace {

[[noreturn]] void fail_to_load(const std::string& what, const std::string& why) {
  throw DeviceError{fmt::format("cannot load {}, which multiplies on a GPU: {}", what, why)};
}

std::string why_not() {
  const char* const said = ::dlerror();
  return said ? said : "it has no address";
}

struct Library {
  std::string file;
  void* handle;
};

/// That of the CUDA this is built with, or where it is missing that of the other: the functions below, their structures
/// and the values passed to them are the same in both, and both work in the context that the process has for a GPU.
Library open_library() {
  constexpr int other = CUBLAS_VER_MAJOR == 13 ? 12 : 13;
  std::string files, why;
  for (const int major : {CUBLAS_VER_MAJOR, other}) {
    std::string file = fmt::format("libcublasLt.so.{}", major);
    if (void* const handle = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL)) return {std::move(file), handle};
    files += (files.empty() ? "" : " or ") + file;
    if (why.empty()) why = why_not();
  }
  fail_to_load(files, why);
}

CublasLt load() {
  const Library library = open_library();
  CublasLt functions = {};
  const auto find = [&]<class Function>(const char* name, Function& function) {
    function = reinterpret_cast<Function>(::dlsym(library.handle, name));
    if (!function) fail_to_load(fmt::format("{} of {}", name, library.file), why_not());
  };
  find("cublasLtCreate", functions.create);
  find("cublasLtDestroy", functions.destroy);
  find("cublasLtGetStatusName", functions.status_name);
  find("cublasLtGetStatusString", functions.status_string);
  find("cublasLtGetVersion", functions.version);
  find("cublasLtMatmul", functions.matmul);
  find("cublasLtMatmulAlgoGetHeuristic", functions.matmul_algo_get_heuristic);
  find("cublasLtMatmulDescCreate", functions.matmul_desc_create);
  find("cublasLtMatmulDescDestroy", functions.matmul_desc_destroy);
  find("cublasLtMatmulDescSetAttribute", functions.matmul_desc_set_attribute);
  find("cublasLtMatmulPreferenceCreate", functions.matmul_preference_create);
  find("cublasLtMatmulPreferenceDestroy", functions.matmul_preference_destroy);
  find("cublasLtMatmulPreferenceSetAttribute", functions.matmul_preference_set_attribute);
  find("cublasLtMatrixLayoutCreate", functions.matrix_layout_create);
  find("cublasLtMatrixLayoutDestroy", functions.matrix_layout_destroy);
  find("cublasLtMatrixLayoutSetAttribute", functions.matrix_layout_set_attribute);
  return functions;
}

}  // namespace

CublasLtCall cublas_lt() {
  static const CublasLt functions = load();
  return CublasLtCall{functions};
}

void check_cublas(cublasStatus_t status, const char* call) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  // The library answers to a late failure with a status of its own.
  lockstep::detail::check_cuda(lockstep::detail::late_failure(), call);
  throw DeviceError{fmt::format("{} failed{}: {} ({})", call, lockstep::detail::device_and_rank(),
                                cublas_lt()->status_string(status), cublas_lt()->status_name(status))};
}

}  // namespace lockstep::ops::cuda
