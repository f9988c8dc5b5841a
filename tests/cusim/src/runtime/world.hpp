// The state of the simulated GPUs' streams, behind one lock: pieces of work, streams, events, captures.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "core.hpp"

namespace cusim {

/// What comes before: for each lane (a stream's number, used anew when the stream has ended) a place in it.
using Clock = std::vector<std::uint32_t>;

void join(Clock& clock, const Clock& other);

struct Piece {
  std::string what;
  Work work;
  std::uint32_t number = 0;  ///< from 1, in the order of enqueuing
  unsigned lane = 0;
  std::uint32_t place = 0;
  Clock clock;  ///< what comes before it, and itself
  std::vector<std::shared_ptr<Piece>> after;
  bool is_host = false;  ///< a function of the host: other pieces go on beside it
  bool is_done = false;
  double done_ms = 0;  ///< when
};
using PiecePointer = std::shared_ptr<Piece>;

struct Node {
  std::string what;
  Work work;
  bool is_host = false;
  cudaStream_t stream = nullptr;   ///< captured on
  std::vector<std::size_t> after;  ///< earlier nodes
};

struct Capture {
  cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
  std::thread::id thread;
  cudaStream_t origin = nullptr;
  std::vector<Node> nodes;
  bool is_valid = true;
  bool has_ended = false;
};

}  // namespace cusim

struct CUstream_st {
  int device = 0;
  unsigned flags = 0;
  int priority = 0;
  unsigned long long number = 0;
  bool is_legacy = false;
  bool is_destroyed = false;
  bool is_running = false;  ///< a piece of it is
  std::uint64_t haste = 0;  ///< where streams are drawn by haste: the largest goes on
  unsigned lane = 0;
  std::uint32_t places = 0;
  cusim::Clock clock;  ///< of all that was enqueued
  std::deque<cusim::PiecePointer> queue;
  cusim::PiecePointer last;
  std::shared_ptr<cusim::Capture> capture;
  std::vector<std::size_t> frontier;  ///< in a capture: the nodes that the next one comes after

  bool is_blocking() const { return (flags & cudaStreamNonBlocking) == 0; }
};

struct CUevent_st {
  int device = 0;
  unsigned flags = 0;
  bool is_destroyed = false;
  cusim::PiecePointer marker;               ///< null: never recorded, or in a capture
  std::shared_ptr<cusim::Capture> capture;  ///< the one it was recorded in last
  std::vector<std::size_t> frontier;
};

namespace cusim {

struct World {
  std::mutex mutex;
  std::condition_variable changed;  ///< a piece ended, or was enqueued
  std::set<cudaStream_t> streams;   ///< all there ever were: an address is used once
  std::set<cudaEvent_t> events;
  std::vector<cudaStream_t> defaults;  ///< each device's legacy stream
  std::vector<cudaStream_t> active;    ///< with pieces in their queue
  std::vector<unsigned> free_lanes;
  std::vector<std::uint32_t> lane_places;          ///< each lane's last place
  std::vector<std::shared_ptr<Capture>> captures;  ///< going on
  unsigned long long handles = 0;
  bool has_ended = false;            ///< the process is ending
  bool is_busy = false;              ///< a piece runs that is not the host's
  Clock host;                        ///< what the host knows to be done
  std::uint32_t enqueued = 0;        ///< pieces so far
  std::uint32_t counted_behind = 0;  ///< how many there were at the last host wait that was counted
  double last_call_ms = 0;
};
World& world();

using Lock = std::unique_lock<std::mutex>;

double now_ms();

/// The stream of a handle: the device's legacy stream for 0. Null if there is none; ends the process if it has been
/// destroyed. Locked.
cudaStream_t stream_of(cudaStream_t handle);

/// Null if there is none; ends the process if it has been destroyed. Locked.
cudaEvent_t event_of(cudaEvent_t handle);

cudaStream_t make_stream(int device, unsigned flags, int priority);

/// Its work goes on. The handle's memory is kept, so that later uses are noticed.
void end_stream(cudaStream_t stream);

/// Once the last work of an ended stream is done.
void give_lane_back(cudaStream_t stream);

/// "stream 3" for messages.
std::string name_of(cudaStream_t stream);

/// Puts a piece behind the stream's others, without regard to captures. Locked.
PiecePointer append(cudaStream_t stream, std::string what, Work work, bool is_host = false,
                    const std::vector<PiecePointer>& after = {});

/// The last pieces that work enqueued now on the stream would come after, others' too if it is the legacy stream.
std::vector<PiecePointer> ends_of(cudaStream_t stream);

/// append(), or a node if the stream is being captured. Locked.
cudaError_t submit(Lock& lock, cudaStream_t stream, std::string what, Work work, bool is_host = false);

/// Calls `body` with the lock and the stream of the handle.
template <class Body>
cudaError_t with_stream(cudaStream_t handle, const Body& body) {
  Lock lock{world().mutex};
  cudaStream_t const stream = stream_of(handle);
  return stream ? body(lock, stream) : cudaErrorInvalidResourceHandle;
}

// --- The executor ---

/// Runs pieces of randomly drawn streams until all of these are done. Returns a late failure.
cudaError_t wait_for(Lock& lock, const std::vector<PiecePointer>& pieces);

/// wait_for() what all streams of a device have.
cudaError_t wait_for_device(Lock& lock, int device);

/// Runs a few pieces, as a query does.
void run_some(Lock& lock);

/// In `eager`: runs all that can run.
void run_eagerly(Lock& lock);

/// Says that the host made a call, and starts the thread that runs pieces in the background.
void note_call();

/// Whether this thread runs a piece of work, or a function of the host in a stream.
bool is_in_piece();
bool is_in_host_function();

bool are_done(const std::vector<PiecePointer>& pieces);

/// The host has seen that all of these are done. Counts a "host wait" if it did not know, whether or not it had to
/// wait: so the count does not depend on the order that was drawn. What it learns next, before it enqueues anything,
/// belongs to the same wait.
void see_done(const std::vector<PiecePointer>& pieces);

// --- Captures ---

/// What a capture says to a call that would wait for the stream or ask it: cudaSuccess if the stream is in none.
cudaError_t refuse_in_capture(cudaStream_t stream);

/// What the captures of this and other threads say to a call that is unsafe during a capture.
cudaError_t refuse_unsafe();

/// What captures of blocking streams say to a use of the legacy stream.
cudaError_t refuse_legacy(cudaStream_t stream);

}  // namespace cusim
