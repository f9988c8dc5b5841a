// The handles and descriptors of cuBLASLt, and which of them are alive.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include <cublasLt.h>

#include "core.hpp"

namespace cusim::cublaslt {

struct Library {
  int device;
};

/// Attributes have the sizes that callers must pass.
struct Description {
  std::int32_t compute;
  std::int32_t scale;
  std::int32_t pointer_mode = CUBLASLT_POINTER_MODE_HOST;
  std::int32_t transpose_a = CUBLAS_OP_N;
  std::int32_t transpose_b = CUBLAS_OP_N;
  std::int32_t transpose_c = CUBLAS_OP_N;
  std::uint32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  const void* bias = nullptr;
  std::int64_t bias_batch_stride = 0;
  std::int32_t bias_type = -1;  ///< -1: the type of D
};

struct Layout {
  std::uint32_t type;
  std::uint64_t rows;
  std::uint64_t columns;
  std::int64_t leading;
  std::int32_t order = CUBLASLT_ORDER_COL;
  std::int32_t batch = 1;
  std::int64_t batch_stride = 0;
};

struct Preference {
  std::uint32_t search_mode = CUBLASLT_SEARCH_BEST_FIT;
  std::uint64_t most_workspace = 0;
  std::uint32_t schemes = CUBLASLT_REDUCTION_SCHEME_MASK;
  std::uint32_t alignment_a = 256;
  std::uint32_t alignment_b = 256;
  std::uint32_t alignment_c = 256;
  std::uint32_t alignment_d = 256;
};

/// Owns the objects behind the handles of one type. Handles are their addresses; one that was removed is not given to a
/// later object, so that its use does not pass unnoticed.
template <class Object, class Handle>
class Alive {
 public:
  explicit Alive(const char* noun) : noun_{noun} {}

  Handle add(const Object& object) {
    auto owned = std::make_unique<Object>(object);
    const auto handle = reinterpret_cast<Handle>(owned.get());
    const std::lock_guard lock{mutex_};
    objects_.emplace(handle, Entry{std::move(owned)});
    return handle;
  }

  void remove(Handle handle, const char* call) {
    const std::lock_guard lock{mutex_};
    entry(handle, call).alive = false;
  }

  /// Ends the process (`found`) if the object is not alive.
  Object& at(Handle handle, const char* call) {
    const std::lock_guard lock{mutex_};
    return *entry(handle, call).object;
  }

 private:
  struct Entry {
    std::unique_ptr<Object> object;
    bool alive = true;
  };

  Entry& entry(Handle handle, const char* call) {
    const auto each = objects_.find(handle);
    if (each == objects_.end() || !each->second.alive)
      found(std::string{call} + ": the " + noun_ + " was destroyed or never created");
    return each->second;
  }

  const char* noun_;
  std::mutex mutex_;
  std::unordered_map<Handle, Entry> objects_;
};

Alive<Library, cublasLtHandle_t>& libraries();
Alive<Description, cublasLtMatmulDesc_t>& descriptions();
Alive<Layout, cublasLtMatrixLayout_t>& layouts();
Alive<Preference, cublasLtMatmulPreference_t>& preferences();

/// Begins a call of the library: counts it and asks for a fault. SUCCESS unless the call itself shall fail. A caller
/// whose work can fail late or hang passes `fault` and sees to both; without it, a call that shall hang does so here.
cublasStatus_t begin_call(const char* call, FaultKind* fault = nullptr);

}  // namespace cusim::cublaslt
