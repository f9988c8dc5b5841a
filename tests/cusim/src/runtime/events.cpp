// Events: pieces of work that mark a place in a stream.
#include <deque>

#include "runtime/call.hpp"
#include "runtime/world.hpp"

using namespace cusim;

namespace {

constexpr std::size_t kept_events = 10000;

/// Handles of destroyed events, used again late, so that later uses are noticed.
std::deque<cudaEvent_t>& destroyed() {
  static auto* const all = new std::deque<cudaEvent_t>;
  return *all;
}

template <class Body>
cudaError_t with_event(cudaEvent_t handle, const Body& body) {
  Lock lock{world().mutex};
  cudaEvent_t const event = event_of(handle);
  return event ? body(lock, event) : cudaErrorInvalidResourceHandle;
}

cudaError_t create(cudaEvent_t* made, unsigned flags) {
  constexpr unsigned known = cudaEventBlockingSync | cudaEventDisableTiming;
  if (!made || (flags & ~known)) return cudaErrorInvalidValue;
  const Lock lock{world().mutex};
  cudaEvent_t event = nullptr;
  if (destroyed().size() > kept_events) {
    event = destroyed().front();
    destroyed().pop_front();
    *event = CUevent_st{};
  } else {
    event = new CUevent_st;
    world().events.insert(event);
  }
  event->device = current_device();
  event->flags = flags;
  *made = event;
  return cudaSuccess;
}

cudaError_t record(cudaEvent_t handle, cudaStream_t stream_handle) {
  return with_event(handle, [&](Lock& lock, cudaEvent_t event) {
    cudaStream_t const stream = stream_of(stream_handle);
    if (!stream || stream->device != event->device) return cudaErrorInvalidResourceHandle;
    if (const cudaError_t refused = refuse_legacy(stream); refused != cudaSuccess) return refused;
    if (stream->capture) {
      if (!stream->capture->is_valid) return cudaErrorStreamCaptureInvalidated;
      event->capture = stream->capture;
      event->frontier = stream->frontier;
      event->marker = nullptr;
      return cudaSuccess;
    }
    event->capture = nullptr;
    event->marker = append(stream, "cudaEventRecord", [] { return true; });
    run_eagerly(lock);
    return cudaSuccess;
  });
}

/// A wait in a capture: the event's nodes come before the stream's next.
cudaError_t wait_in_capture(cudaStream_t stream, cudaEvent_t event) {
  if (stream->capture && !stream->capture->is_valid) return cudaErrorStreamCaptureInvalidated;
  if (!event->capture || event->capture->has_ended) {
    if (!stream->capture) return cudaErrorCapturedEvent;
    stream->capture->is_valid = false;
    return cudaErrorStreamCaptureIsolation;
  }
  if (stream->is_legacy) return cudaErrorStreamCaptureImplicit;
  if (stream->capture && stream->capture != event->capture) {
    stream->capture->is_valid = false;
    event->capture->is_valid = false;
    return cudaErrorStreamCaptureMerge;
  }
  if (!event->capture->is_valid) return cudaErrorStreamCaptureInvalidated;
  if (!stream->capture) stream->frontier.clear();
  stream->capture = event->capture;
  stream->frontier.insert(stream->frontier.end(), event->frontier.begin(), event->frontier.end());
  return cudaSuccess;
}

cudaError_t wait(cudaStream_t stream_handle, cudaEvent_t handle, unsigned flags) {
  if (flags != cudaEventWaitDefault) return cudaErrorNotSupported;
  return with_event(handle, [&](Lock& lock, cudaEvent_t event) {
    cudaStream_t const stream = stream_of(stream_handle);
    if (!stream) return cudaErrorInvalidResourceHandle;
    if (const cudaError_t refused = refuse_legacy(stream); refused != cudaSuccess) return refused;
    if (stream->capture || event->capture) return wait_in_capture(stream, event);
    if (!event->marker) return cudaSuccess;  // never recorded: nothing to wait for
    append(stream, "cudaStreamWaitEvent", [] { return true; }, false, {event->marker});
    run_eagerly(lock);
    return cudaSuccess;
  });
}

cudaError_t refuse_captured(cudaEvent_t event) {
  if (!event->capture) return cudaSuccess;
  event->capture->is_valid = false;
  return cudaErrorCapturedEvent;
}

cudaError_t query(cudaEvent_t handle) {
  return with_event(handle, [](Lock& lock, cudaEvent_t event) {
    if (const cudaError_t refused = refuse_captured(event); refused != cudaSuccess) return refused;
    if (const cudaError_t refused = refuse_unsafe(); refused != cudaSuccess) return refused;
    const PiecePointer marker = event->marker;
    if (!marker) return cudaSuccess;
    if (!marker->is_done) run_some(lock);
    if (late_failure() != cudaSuccess) return late_failure();
    if (!marker->is_done) return cudaErrorNotReady;
    see_done({marker});
    return cudaSuccess;
  });
}

cudaError_t synchronize(cudaEvent_t handle) {
  return with_event(handle, [](Lock& lock, cudaEvent_t event) {
    if (const cudaError_t refused = refuse_captured(event); refused != cudaSuccess) return refused;
    if (const cudaError_t refused = refuse_unsafe(); refused != cudaSuccess) return refused;
    return event->marker ? wait_for(lock, {event->marker}) : cudaSuccess;
  });
}

cudaError_t elapsed(float* ms, cudaEvent_t begin_handle, cudaEvent_t end_handle) {
  if (!ms) return cudaErrorInvalidValue;
  return with_event(begin_handle, [&](Lock&, cudaEvent_t begin) {
    cudaEvent_t const end = event_of(end_handle);
    if (!end) return cudaErrorInvalidResourceHandle;
    for (cudaEvent_t event : {begin, end})
      if ((event->flags & cudaEventDisableTiming) || (!event->marker && !event->capture))
        return cudaErrorInvalidResourceHandle;
    for (cudaEvent_t event : {begin, end})
      if (event->capture) return cudaErrorCapturedEvent;
    if (!begin->marker->is_done || !end->marker->is_done) return cudaErrorNotReady;
    *ms = static_cast<float>(end->marker->done_ms - begin->marker->done_ms);
    return cudaSuccess;
  });
}

}  // namespace

cudaEvent_t cusim::event_of(cudaEvent_t handle) {
  if (!handle || !world().events.contains(handle)) return nullptr;
  if (handle->is_destroyed) found("an event is used after cudaEventDestroy");
  return handle;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* made, unsigned flags) {
  return call("cudaEventCreateWithFlags", [&] { return create(made, flags); });
}

cudaError_t cudaEventDestroy(cudaEvent_t handle) {
  return call("cudaEventDestroy", [&] {
    return with_event(handle, [](Lock&, cudaEvent_t event) {
      event->is_destroyed = true;
      event->marker = nullptr;  // the work that waits for it goes on
      event->capture = nullptr;
      destroyed().push_back(event);
      return cudaSuccess;
    });
  });
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return call_on("cudaEventRecord", stream, [&] { return record(event, stream); });
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags) {
  return call_on("cudaStreamWaitEvent", stream, [&] { return wait(stream, event, flags); });
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  return call("cudaEventQuery", [&] { return query(event); });
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return call("cudaEventSynchronize", [&] { return synchronize(event); });
}

cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t begin, cudaEvent_t end) {
  return call("cudaEventElapsedTime", [&] { return elapsed(ms, begin, end); });
}
