// The capture of streams into graphs, and what it forbids.
#include <algorithm>

#include "runtime/call.hpp"
#include "runtime/graph.hpp"
#include "runtime/world.hpp"

namespace cusim {
namespace {

thread_local cudaStreamCaptureMode mode_of_thread = cudaStreamCaptureModeGlobal;

bool is_mode(cudaStreamCaptureMode mode) {
  return mode >= cudaStreamCaptureModeGlobal && mode <= cudaStreamCaptureModeRelaxed;
}

/// Whether unsafe calls of this thread would disturb the capture.
bool forbids_unsafe(const Capture& capture) {
  if (mode_of_thread == cudaStreamCaptureModeRelaxed || capture.mode == cudaStreamCaptureModeRelaxed) return false;
  if (capture.thread == std::this_thread::get_id()) return true;
  return mode_of_thread == cudaStreamCaptureModeGlobal && capture.mode == cudaStreamCaptureModeGlobal;
}

bool has_blocking_stream(const std::shared_ptr<Capture>& capture) {
  const auto& all = world().streams;
  return std::any_of(all.begin(), all.end(),
                     [&](cudaStream_t stream) { return stream->capture == capture && stream->is_blocking(); });
}

/// Whether each node comes before the origin's next.
bool is_joined(const Capture& capture) {
  std::vector<bool> is_before(capture.nodes.size());
  for (const std::size_t last : capture.origin->frontier) is_before[last] = true;
  for (std::size_t node = capture.nodes.size(); node-- > 0;)
    if (is_before[node])
      for (const std::size_t earlier : capture.nodes[node].after) is_before[earlier] = true;
  return std::all_of(is_before.begin(), is_before.end(), [](bool is) { return is; });
}

void end_for_streams(const std::shared_ptr<Capture>& capture) {
  World& all = world();
  for (cudaStream_t stream : all.streams) {
    if (stream->capture != capture) continue;
    stream->capture = nullptr;
    stream->frontier.clear();
  }
  capture->has_ended = true;
  std::erase(all.captures, capture);
}

cudaError_t begin(cudaStream_t handle, cudaStreamCaptureMode mode) {
  if (!is_mode(mode)) return cudaErrorInvalidValue;
  return with_stream(handle, [&](Lock&, cudaStream_t stream) {
    if (stream->is_legacy) return cudaErrorStreamCaptureUnsupported;
    if (stream->capture) return cudaErrorIllegalState;
    auto capture = std::make_shared<Capture>();
    capture->mode = mode;
    capture->thread = std::this_thread::get_id();
    capture->origin = stream;
    stream->capture = capture;
    stream->frontier.clear();
    world().captures.push_back(capture);
    return cudaSuccess;
  });
}

cudaError_t end(cudaStream_t handle, cudaGraph_t* graph) {
  if (!graph) return cudaErrorInvalidValue;
  *graph = nullptr;
  return with_stream(handle, [&](Lock&, cudaStream_t stream) {
    const std::shared_ptr<Capture> capture = stream->capture;
    if (!capture) return cudaErrorIllegalState;
    if (capture->origin != stream) {
      capture->is_valid = false;
      return cudaErrorStreamCaptureUnmatched;
    }
    if (capture->mode != cudaStreamCaptureModeRelaxed && capture->thread != std::this_thread::get_id()) {
      capture->is_valid = false;
      return cudaErrorStreamCaptureWrongThread;
    }
    const bool joined = is_joined(*capture);
    end_for_streams(capture);
    if (!capture->is_valid) return cudaErrorStreamCaptureInvalidated;
    if (!joined) return cudaErrorStreamCaptureUnjoined;
    *graph = make_graph(capture->nodes, stream);
    return cudaSuccess;
  });
}

cudaError_t status_of(cudaStream_t handle, cudaStreamCaptureStatus* status) {
  if (!status) return cudaErrorInvalidValue;
  return with_stream(handle, [&](Lock&, cudaStream_t stream) {
    if (const cudaError_t refused = refuse_legacy(stream); refused != cudaSuccess) return refused;
    *status = !stream->capture            ? cudaStreamCaptureStatusNone
              : stream->capture->is_valid ? cudaStreamCaptureStatusActive
                                          : cudaStreamCaptureStatusInvalidated;
    return cudaSuccess;
  });
}

}  // namespace

cudaError_t refuse_in_capture(cudaStream_t stream) {
  if (!stream->capture) return cudaSuccess;
  stream->capture->is_valid = false;
  return cudaErrorStreamCaptureUnsupported;
}

cudaError_t refuse_unsafe() {
  cudaError_t result = cudaSuccess;
  for (const auto& capture : world().captures) {
    if (!forbids_unsafe(*capture)) continue;
    capture->is_valid = false;
    result = cudaErrorStreamCaptureUnsupported;
  }
  return result;
}

cudaError_t refuse_legacy(cudaStream_t stream) {
  if (!stream->is_legacy) return cudaSuccess;
  cudaError_t result = cudaSuccess;
  for (const auto& capture : world().captures) {
    if (!has_blocking_stream(capture)) continue;
    capture->is_valid = false;
    result = cudaErrorStreamCaptureImplicit;
  }
  return result;
}

}  // namespace cusim

using namespace cusim;

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  return call("cudaStreamBeginCapture", [&] { return begin(stream, mode); });
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  return call("cudaStreamEndCapture", [&] { return end(stream, graph); });
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  return call("cudaStreamIsCapturing", [&] { return status_of(stream, status); });
}

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  return call("cudaThreadExchangeStreamCaptureMode", [&] {
    if (!mode || !is_mode(*mode)) return cudaErrorInvalidValue;
    std::swap(*mode, mode_of_thread);
    return cudaSuccess;
  });
}
