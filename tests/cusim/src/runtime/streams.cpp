// Streams as queues of pieces of work.
#include <algorithm>

#include <fmt/format.h>

#include "runtime/call.hpp"
#include "runtime/order.hpp"
#include "runtime/world.hpp"

namespace cusim {
namespace {

/// Streams of `cudaStreamPerThread`, one for each device.
cudaStream_t own_stream_of_thread(int device) {
  static thread_local std::vector<cudaStream_t> own(static_cast<std::size_t>(std::max(1, settings().devices)));
  cudaStream_t& stream = own[static_cast<std::size_t>(device)];
  if (!stream) stream = make_stream(device, cudaStreamDefault, 0);
  return stream;
}

cudaStream_t legacy_of(int device) {
  World& all = world();
  while (all.defaults.size() <= static_cast<std::size_t>(device)) {
    cudaStream_t const made = make_stream(static_cast<int>(all.defaults.size()), cudaStreamDefault, 0);
    made->is_legacy = true;
    all.defaults.push_back(made);
  }
  return all.defaults[static_cast<std::size_t>(device)];
}

unsigned take_lane() {
  World& all = world();
  if (!all.free_lanes.empty()) {
    const unsigned lane = all.free_lanes.back();
    all.free_lanes.pop_back();
    return lane;
  }
  all.lane_places.push_back(0);
  return static_cast<unsigned>(all.lane_places.size() - 1);
}

/// The streams that the legacy stream's work is ordered with: the device's blocking ones.
std::vector<cudaStream_t> partners(cudaStream_t stream) {
  std::vector<cudaStream_t> all;
  if (!stream->is_blocking()) return all;
  for (cudaStream_t other : world().streams)
    if (other != stream && other->device == stream->device && other->is_blocking() &&
        (stream->is_legacy || other->is_legacy))
      all.push_back(other);
  return all;
}

}  // namespace

World& world() {
  static World* const only = new World;
  return *only;
}

cudaStream_t make_stream(int device, unsigned flags, int priority) {
  World& all = world();
  auto* const made = new CUstream_st;
  made->device = device;
  made->flags = flags;
  made->priority = priority;
  made->number = ++all.handles;
  made->lane = take_lane();
  all.streams.insert(made);
  return made;
}

cudaStream_t stream_of(cudaStream_t handle) {
  if (handle == nullptr || handle == cudaStreamLegacy) return legacy_of(current_device());
  if (handle == cudaStreamPerThread) return own_stream_of_thread(current_device());
  if (!world().streams.contains(handle)) return nullptr;
  if (handle->is_destroyed) found(name_of(handle) + " is used after cudaStreamDestroy");
  return handle;
}

void end_stream(cudaStream_t stream) {
  stream->is_destroyed = true;
  if (stream->queue.empty()) give_lane_back(stream);
}

void give_lane_back(cudaStream_t stream) {
  world().free_lanes.push_back(stream->lane);
}

std::string name_of(cudaStream_t stream) {
  return stream->is_legacy ? "the default stream" : fmt::format("stream {}", stream->number);
}

PiecePointer append(cudaStream_t stream, std::string what, Work work, bool is_host,
                    const std::vector<PiecePointer>& after) {
  World& all = world();
  auto piece = std::make_shared<Piece>();
  piece->what = std::move(what);
  piece->work = std::move(work);
  piece->is_host = is_host;
  piece->lane = stream->lane;
  piece->place = ++all.lane_places[stream->lane];
  ++all.enqueued;
  piece->number = enter_piece(piece->lane, piece->place, fmt::format("{} in {}", piece->what, name_of(stream)));
  join(stream->clock, all.host);
  std::vector<PiecePointer> before = after;
  for (cudaStream_t other : partners(stream))
    if (other->last) before.push_back(other->last);
  for (const PiecePointer& other : before) {
    join(stream->clock, other->clock);
    if (!other->is_done) piece->after.push_back(other);
  }
  if (stream->clock.size() <= piece->lane) stream->clock.resize(piece->lane + 1);
  stream->clock[piece->lane] = piece->place;
  piece->clock = stream->clock;
  if (stream->queue.empty()) all.active.push_back(stream);
  stream->queue.push_back(piece);
  stream->last = piece;
  all.changed.notify_all();
  return piece;
}

std::vector<PiecePointer> ends_of(cudaStream_t stream) {
  std::vector<PiecePointer> ends;
  if (stream->last) ends.push_back(stream->last);
  if (stream->is_legacy)
    for (cudaStream_t other : partners(stream))
      if (other->last) ends.push_back(other->last);
  return ends;
}

cudaError_t wait_for_device(Lock& lock, int device) {
  std::vector<PiecePointer> ends;
  for (cudaStream_t stream : world().streams)
    if (stream->last && stream->device == device) ends.push_back(stream->last);
  return wait_for(lock, ends);
}

cudaError_t submit(Lock& lock, cudaStream_t stream, std::string what, Work work, bool is_host) {
  if (const cudaError_t refused = refuse_legacy(stream); refused != cudaSuccess) return refused;
  if (stream->capture) {
    Capture& capture = *stream->capture;
    if (!capture.is_valid) return cudaErrorStreamCaptureInvalidated;
    capture.nodes.push_back({std::move(what), std::move(work), is_host, stream, stream->frontier});
    stream->frontier = {capture.nodes.size() - 1};
    return cudaSuccess;
  }
  append(stream, std::move(what), std::move(work), is_host);
  run_eagerly(lock);
  return cudaSuccess;
}

cudaError_t enqueue(cudaStream_t handle, std::string what, Work work) {
  if (is_in_host_function()) return cudaErrorNotPermitted;
  if (late_failure() != cudaSuccess) return late_failure();
  note_call();
  return with_stream(
      handle, [&](Lock& lock, cudaStream_t stream) { return submit(lock, stream, std::move(what), std::move(work)); });
}

bool is_capturing(cudaStream_t handle) {
  const Lock lock{world().mutex};
  cudaStream_t const stream = stream_of(handle);
  return stream && stream->capture;
}

}  // namespace cusim
