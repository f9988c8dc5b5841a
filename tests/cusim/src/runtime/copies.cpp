// Copies and memsets.
#include <cstring>
#include <memory>
#include <vector>

#include <fmt/format.h>

#include "memory.hpp"
#include "runtime/arena.hpp"
#include "runtime/call.hpp"
#include "runtime/world.hpp"

using namespace cusim;

namespace {

struct Copy {
  std::byte* to = nullptr;
  const std::byte* from = nullptr;
  std::size_t bytes = 0;
  MemoryKind to_kind = MemoryKind::unknown;
  MemoryKind from_kind = MemoryKind::unknown;

  bool is_on_host() const { return to_kind != MemoryKind::device && from_kind != MemoryKind::device; }
  bool is_on_device() const { return to_kind == MemoryKind::device && from_kind == MemoryKind::device; }
};

bool fits(cudaMemcpyKind kind, const Copy& copy) {
  const bool from_device = copy.from_kind == MemoryKind::device;
  const bool to_device = copy.to_kind == MemoryKind::device;
  switch (kind) {
    case cudaMemcpyHostToHost: return !from_device && !to_device;
    case cudaMemcpyHostToDevice: return !from_device && to_device;
    case cudaMemcpyDeviceToHost: return from_device && !to_device;
    case cudaMemcpyDeviceToDevice: return from_device && to_device;
    case cudaMemcpyDefault: return true;
  }
  return false;
}

/// Bytes that nothing has written may be copied within the GPU, and stay unwritten.
void copy_on_device(const Copy& copy) {
  constexpr const char* who = "a copy";
  if (!memory::may_touch_all(copy.from, copy.bytes)) memory::refuse(copy.from, copy.bytes, "reads", who);
  memory::note_read(copy.from, copy.bytes, memory::current_piece(), who);
  const std::uint8_t* const states = memory::arena.states + memory::index_of(copy.from);
  const std::vector<std::uint8_t> kept(states, states + copy.bytes);
  writes(copy.to, copy.bytes, who);
  std::memmove(copy.to, copy.from, copy.bytes);
  std::memcpy(memory::arena.states + memory::index_of(copy.to), kept.data(), copy.bytes);
}

bool run(const Copy& copy) {
  const GpuAccess access;
  if (copy.is_on_device()) {
    copy_on_device(copy);
    return true;
  }
  reads(copy.from, copy.bytes, "a copy");
  writes(copy.to, copy.bytes, "a copy");
  std::memmove(copy.to, copy.from, copy.bytes);
  return true;
}

/// Device memory that was freed in the host's order, or that belongs to no allocation, is no host memory either.
void check_ends(const Copy& copy) {
  for (const void* address : {static_cast<const void*>(copy.to), static_cast<const void*>(copy.from)})
    if (memory::holds(address) && memory_at(address).kind == MemoryKind::unknown)
      found(fmt::format("a copy is asked for of {}", memory::describe(address)));
}

/// Enqueues a copy whose source may be pageable, and is then read now.
cudaError_t submit_copy(Lock& lock, cudaStream_t stream, const Copy& copy) {
  if (copy.from_kind != MemoryKind::unknown || stream->capture)
    return submit(lock, stream, "a copy", [copy] { return run(copy); });
  const auto staged = std::make_shared<std::vector<std::byte>>(copy.from, copy.from + copy.bytes);
  return submit(lock, stream, "a copy", [copy, staged] {
    const GpuAccess access;
    writes(copy.to, copy.bytes, "a copy");
    std::memcpy(copy.to, staged->data(), copy.bytes);
    return true;
  });
}

cudaError_t copy(Lock& lock, cudaStream_t stream, const Copy& what, bool is_async) {
  if (is_async && what.is_on_host()) {
    // CUDA promises that the host has then waited.
    if (const cudaError_t refused = refuse_in_capture(stream); refused != cudaSuccess) return refused;
  }
  const bool waits = !stream->capture && (what.to_kind == MemoryKind::unknown || (!is_async && !what.is_on_device()));
  if (!is_async && what.from_kind == MemoryKind::unknown)
    if (const cudaError_t failed = wait_for(lock, ends_of(stream)); failed != cudaSuccess) return failed;
  const bool is_staged_only = !is_async && what.from_kind == MemoryKind::unknown && what.to_kind == MemoryKind::device;
  if (const cudaError_t failed = submit_copy(lock, stream, what); failed != cudaSuccess) return failed;
  return waits && !is_staged_only ? wait_for(lock, ends_of(stream)) : cudaSuccess;
}

cudaError_t start(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, cudaStream_t handle,
                  bool is_async) {
  if (bytes == 0) return cudaSuccess;
  if (!to || !from) return cudaErrorInvalidValue;
  const Copy what{static_cast<std::byte*>(to), static_cast<const std::byte*>(from), bytes, memory_at(to).kind,
                  memory_at(from).kind};
  check_ends(what);
  if (kind < cudaMemcpyHostToHost || kind > cudaMemcpyDefault) return cudaErrorInvalidMemcpyDirection;
  if (!fits(kind, what)) return cudaErrorInvalidValue;
  return with_stream(handle, [&](Lock& lock, cudaStream_t stream) {
    if (!is_async)
      if (const cudaError_t refused = refuse_unsafe(); refused != cudaSuccess) return refused;
    if (const cudaError_t refused = refuse_legacy(stream); refused != cudaSuccess) return refused;
    return copy(lock, stream, what, is_async);
  });
}

cudaError_t start_set(void* to, int value, std::size_t bytes, cudaStream_t handle, bool is_async) {
  if (bytes == 0) return cudaSuccess;
  const MemoryKind kind = memory_at(to).kind;
  if (memory::holds(to) && kind == MemoryKind::unknown)
    found(fmt::format("a memset is asked for of {}", memory::describe(to)));
  if (kind == MemoryKind::unknown) return cudaErrorInvalidValue;
  return with_stream(handle, [&](Lock& lock, cudaStream_t stream) {
    const cudaError_t result = submit(lock, stream, "a memset", [to, value, bytes] {
      const GpuAccess access;
      writes(to, bytes, "a memset");
      std::memset(to, value, bytes);
      return true;
    });
    if (result != cudaSuccess || is_async || kind == MemoryKind::device) return result;
    return wait_for(lock, ends_of(stream));
  });
}

}  // namespace

cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
  return call_on("cudaMemcpy", nullptr, [&] { return start(to, from, bytes, kind, nullptr, false); });
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  return call_on("cudaMemcpyAsync", stream, [&] { return start(to, from, bytes, kind, stream, true); });
}

cudaError_t cudaMemset(void* to, int value, std::size_t bytes) {
  return call_on("cudaMemset", nullptr, [&] { return start_set(to, value, bytes, nullptr, false); });
}

cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t stream) {
  return call_on("cudaMemsetAsync", stream, [&] { return start_set(to, value, bytes, stream, true); });
}
