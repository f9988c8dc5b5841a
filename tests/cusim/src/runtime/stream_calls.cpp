// The API's functions of streams.
#include <algorithm>

#include "runtime/call.hpp"
#include "runtime/world.hpp"

using namespace cusim;

namespace {

constexpr int least_priority = 0;
constexpr int greatest_priority = -5;

cudaError_t create(cudaStream_t* made, unsigned flags, int priority) {
  if (!made || (flags & ~unsigned{cudaStreamNonBlocking})) return cudaErrorInvalidValue;
  const Lock lock{world().mutex};
  *made = make_stream(current_device(), flags, std::clamp(priority, greatest_priority, least_priority));
  return cudaSuccess;
}

/// What a call that waits for the stream, or asks it, may not do now.
cudaError_t refuse_wait(cudaStream_t stream) {
  if (const cudaError_t refused = refuse_in_capture(stream); refused != cudaSuccess) return refused;
  if (const cudaError_t refused = refuse_unsafe(); refused != cudaSuccess) return refused;
  return refuse_legacy(stream);
}

cudaError_t destroy(cudaStream_t handle) {
  if (handle == nullptr || handle == cudaStreamLegacy || handle == cudaStreamPerThread)
    return cudaErrorInvalidResourceHandle;
  return with_stream(handle, [](Lock&, cudaStream_t stream) {
    if (stream->capture) stream->capture->is_valid = false;
    end_stream(stream);
    return cudaSuccess;
  });
}

cudaError_t synchronize(cudaStream_t handle) {
  return with_stream(handle, [](Lock& lock, cudaStream_t stream) {
    if (const cudaError_t refused = refuse_wait(stream); refused != cudaSuccess) return refused;
    return wait_for(lock, ends_of(stream));
  });
}

cudaError_t query(cudaStream_t handle) {
  return with_stream(handle, [](Lock& lock, cudaStream_t stream) {
    if (const cudaError_t refused = refuse_wait(stream); refused != cudaSuccess) return refused;
    const std::vector<PiecePointer> ends = ends_of(stream);
    if (!are_done(ends)) run_some(lock);
    if (late_failure() != cudaSuccess) return late_failure();
    if (!are_done(ends)) return cudaErrorNotReady;
    see_done(ends);
    return cudaSuccess;
  });
}

}  // namespace

cudaError_t cudaStreamCreate(cudaStream_t* made) {
  return call("cudaStreamCreate", [&] { return create(made, cudaStreamDefault, 0); });
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* made, unsigned flags) {
  return call("cudaStreamCreateWithFlags", [&] { return create(made, flags, 0); });
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* made, unsigned flags, int priority) {
  return call("cudaStreamCreateWithPriority", [&] { return create(made, flags, priority); });
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  return call("cudaStreamDestroy", [&] { return destroy(stream); });
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  return call_on("cudaStreamSynchronize", stream, [&] { return synchronize(stream); });
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
  return call_on("cudaStreamQuery", stream, [&] { return query(stream); });
}

cudaError_t cudaStreamGetFlags(cudaStream_t handle, unsigned* flags) {
  return call("cudaStreamGetFlags", [&] {
    return with_stream(handle, [&](Lock&, cudaStream_t stream) {
      *flags = stream->flags;
      return cudaSuccess;
    });
  });
}

cudaError_t cudaStreamGetPriority(cudaStream_t handle, int* priority) {
  return call("cudaStreamGetPriority", [&] {
    return with_stream(handle, [&](Lock&, cudaStream_t stream) {
      *priority = stream->priority;
      return cudaSuccess;
    });
  });
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  return call("cudaDeviceGetStreamPriorityRange", [&] {
    if (least) *least = least_priority;
    if (greatest) *greatest = greatest_priority;
    return cudaSuccess;
  });
}

cudaError_t cudaLaunchHostFunc(cudaStream_t handle, cudaHostFn_t function, void* data) {
  return call_on("cudaLaunchHostFunc", handle, [&] {
    if (!function) return cudaErrorInvalidValue;
    return with_stream(handle, [&](Lock& lock, cudaStream_t stream) {
      const auto work = [function, data] {
        function(data);
        return true;
      };
      return submit(lock, stream, "a host function", work, true);
    });
  });
}

cudaError_t cudaDeviceSynchronize() {
  return call("cudaDeviceSynchronize", [] {
    World& all = world();
    Lock lock{all.mutex};
    if (!all.captures.empty()) {
      for (const auto& capture : all.captures) capture->is_valid = false;
      return cudaErrorStreamCaptureUnsupported;
    }
    return wait_for_device(lock, current_device());
  });
}
