#include "communicator.hpp"

#include <algorithm>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "../core.hpp"

namespace cusim {
namespace {

using namespace std::chrono_literals;

/// How often the thread of a communicator goes on with what nobody waits for.
constexpr auto beat = 2ms;
/// When it enqueues what the program has not asked for since.
constexpr auto longest_deferral = 20ms;
/// How often a call that blocks looks.
constexpr auto pause = 100us;

/// What is enqueued on `stream` from here on comes after what is on `other`.
cudaError_t make_wait(cudaStream_t stream, cudaStream_t other) {
  cudaEvent_t event = nullptr;
  cudaError_t result = cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
  if (result != cudaSuccess) return result;
  result = cudaEventRecord(event, other);
  if (result == cudaSuccess) result = cudaStreamWaitEvent(stream, event, 0);
  (void)cudaEventDestroy(event);
  return result;
}

}  // namespace

Comm::Comm(const Setup& setup)
    : place_{setup.rank, setup.size, setup.device, {}}, blocking_{setup.blocking}, in_progress_{"its start"} {
  stuck_ = setup.fault.kind == FaultKind::hang;
  if (stuck_) return;
  start_fault_ = setup.fault;
  rendezvous_.emplace(setup.id, setup.size, setup.rank, setup.device);
}

std::shared_ptr<Comm> Comm::make(const Setup& setup) {
  std::shared_ptr<Comm> made{new Comm{setup}};
  made->start_thread();
  return made;
}

/// Detached, because the communicator may be given up by a thread that must not wait.
void Comm::start_thread() {
  std::thread{[self = shared_from_this()] { self->serve(); }}.detach();
}

void Comm::serve() {
  std::unique_lock lock{mutex_};
  while (phase_ != Phase::ended) {
    if (needs_service())
      changed_.wait_for(lock, beat);
    else
      changed_.wait(lock);
    if (phase_ != Phase::ended && needs_service()) advance(lock, Asker::thread);
  }
}

bool Comm::needs_service() const {
  if (stuck_) return false;
  if (!in_progress_.empty()) return true;
  return !running_ && std::any_of(place_.connections.begin(), place_.connections.end(),
                                  [](const auto& connection) { return connection && connection->has_unsent(); });
}

std::string Comm::in_progress() {
  const std::lock_guard lock{mutex_};
  return error_ == ncclSuccess ? in_progress_ : std::string{};
}

ncclResult_t Comm::state() const {
  if (error_ != ncclSuccess) return error_;
  return in_progress_.empty() ? ncclSuccess : ncclInProgress;
}

ncclResult_t Comm::look() {
  bool waits_for_streams = false;
  {
    const std::lock_guard lock{mutex_};
    waits_for_streams = phase_ == Phase::finalizing && unfinished_ > 0;
  }
  if (waits_for_streams) make_progress();
  std::unique_lock lock{mutex_};
  if (phase_ != Phase::ended) advance(lock, Asker::program);
  return state();
}

ncclResult_t Comm::wait() {
  ncclResult_t result = look();
  for (; result == ncclInProgress; result = look()) std::this_thread::sleep_for(pause);
  return result;
}

ncclResult_t Comm::settle() {
  if (blocking_) return wait();
  const std::lock_guard lock{mutex_};
  return state();
}

void Comm::advance(std::unique_lock<std::mutex>& lock, Asker asker) {
  if (stuck_ || error_ != ncclSuccess) return;
  if (phase_ == Phase::starting) return advance_start();
  // What an operation moves, only its work on the stream moves.
  if (running_) {
    look_at_peers();
  } else {
    pump();
  }
  if (phase_ == Phase::finalizing) return advance_end();
  if (deferred_ && is_due(asker)) {
    const auto launch = std::exchange(deferred_, nullptr);
    const ncclResult_t result = enqueue(lock, launch);
    in_progress_.clear();
    if (result != ncclSuccess) fail(result, "the operation could not be enqueued");
  }
}

/// Drawn looks, or long enough without one.
bool Comm::is_due(Asker asker) {
  return asker == Asker::program ? --looks_left_ <= 0 : Clock::now() - deferred_since_ > longest_deferral;
}

void Comm::advance_start() {
  const ncclResult_t result = rendezvous_->advance();
  if (result == ncclInProgress) return;
  if (result != ncclSuccess) return fail(result, rendezvous_->problem());
  if (start_fault_.kind == FaultKind::late) return fail(start_fault_.result, "an injected fault of the start");
  int peer = 0;
  for (Socket& socket : rendezvous_->take()) {
    const bool is_other = peer != place_.rank;
    place_.connections.push_back(is_other ? std::make_unique<Connection>(std::move(socket), peer) : nullptr);
    ++peer;
  }
  rendezvous_.reset();
  phase_ = Phase::running;
  in_progress_.clear();
}

void Comm::advance_end() {
  if (unfinished_ > 0) return;
  if (!std::exchange(said_goodbye_, true)) {
    place_.for_each_peer([&](int peer) {
      goodbyes_.parts += 2;
      place_.to(peer).send({.header = {.kind = Kind::goodbye}, .outstanding = &goodbyes_});
      place_.to(peer).expect({.expected = {.kind = Kind::goodbye}, .outstanding = &goodbyes_});
    });
    pump();
  }
  if (goodbyes_.parts > 0 || error_ != ncclSuccess) return;
  phase_ = Phase::finalized;
  in_progress_.clear();
}

void Comm::pump() {
  if (phase_ == Phase::finalized || phase_ == Phase::ended) return;
  for (const auto& connection : place_.connections) {
    if (!connection || connection->pump(said_goodbye_) != Connection::State::dead || error_ != ncclSuccess) continue;
    fail(ncclRemoteError, fmt::format("rank {} has gone away", connection->peer()));
  }
}

void Comm::look_at_peers() {
  for (const auto& connection : place_.connections)
    if (connection && connection->has_hung_up())
      fail(ncclRemoteError, fmt::format("rank {} has gone away", connection->peer()));
}

void Comm::fail(ncclResult_t error, const std::string& problem) {
  if (error_ != ncclSuccess) return;
  error_ = error;
  problem_ = problem;
}

ncclResult_t Comm::launch(std::vector<Call> calls) {
  std::vector<cudaStream_t> streams;
  for (const Call& call : calls)
    if (std::find(streams.begin(), streams.end(), call.stream) == streams.end()) streams.push_back(call.stream);
  const bool is_captured = is_capturing(streams.front());
  const bool defers = !blocking_ && !is_captured && draw("nccl in progress", 3) == 0;

  std::unique_lock lock{mutex_};
  const auto launch = std::make_shared<Launch>(Launch{Piece{std::move(calls)}, std::move(streams)});
  launch->is_captured = is_captured;
  if (const ncclResult_t result = launch->piece.check(place_, problem_); result != ncclSuccess) return result;
  if (!is_captured) launch->turn = next_turn_++;
  if (!defers) return enqueue(lock, launch);
  deferred_ = launch;
  looks_left_ = 1 + static_cast<int>(draw("nccl looks", 5));
  deferred_since_ = Clock::now();
  in_progress_ = launch->piece.text();
  changed_.notify_all();
  return ncclInProgress;
}

/// Without the lock: in some orders of streams the work runs at once.
ncclResult_t Comm::enqueue(std::unique_lock<std::mutex>& lock, const std::shared_ptr<Launch>& launch) {
  if (!launch->is_captured) ++unfinished_;
  lock.unlock();
  const int before = current_device();
  if (before != place_.device) (void)cudaSetDevice(place_.device);
  const cudaError_t result = enqueue_on_streams(launch);
  if (before != place_.device) (void)cudaSetDevice(before);
  lock.lock();
  return result == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}

/// On the first stream. It comes after what is on the others, and what they get next comes after it.
cudaError_t Comm::enqueue_on_streams(const std::shared_ptr<Launch>& launch) {
  cudaStream_t const first = launch->streams.front();
  for (std::size_t i = 1; i < launch->streams.size(); ++i)
    if (const cudaError_t result = make_wait(first, launch->streams[i]); result != cudaSuccess) return result;
  const cudaError_t enqueued =
      cusim::enqueue(first, launch->piece.text(), [self = shared_from_this(), launch] { return self->run(launch); });
  if (enqueued != cudaSuccess) return enqueued;
  for (std::size_t i = 1; i < launch->streams.size(); ++i)
    if (const cudaError_t result = make_wait(launch->streams[i], first); result != cudaSuccess) return result;
  return cudaSuccess;
}

bool Comm::run(const std::shared_ptr<Launch>& launch) {
  const GpuAccess access;
  const std::lock_guard lock{mutex_};
  if (launch->done && !launch->is_captured) return true;
  if (phase_ == Phase::ended) {
    launch->piece.give_up(place_);
    launch->done = true;
    return true;
  }
  if (!launch->started) {
    if (launch->since == Clock::time_point{}) launch->since = Clock::now();
    if (!may_start(*launch)) return false;
    launch->started = true;
    launch->since = Clock::now();
    running_ = launch;
    if (const Injected* const fault = launch->piece.fault(FaultKind::late))
      fail(fault->result, "an injected fault of " + launch->piece.text());
    if (error_ == ncclSuccess) launch->piece.start(place_);
  }
  if (error_ == ncclSuccess) pump();
  // As NCCL's kernels do: after an error they run until ncclCommAbort.
  if (error_ != ncclSuccess) return false;
  if (!launch->piece.is_complete()) {
    complain_if_late(*launch);
    return false;
  }
  launch->piece.finish(place_);
  running_.reset();
  if (launch->is_captured) {
    launch->started = false;
  } else {
    launch->done = true;
    ++turn_;
    --unfinished_;
  }
  if (needs_service()) changed_.notify_all();
  return true;
}

/// NCCL runs the operations of a communicator one after another, whatever their streams.
bool Comm::may_start(const Launch& launch) const {
  return error_ == ncclSuccess && !running_ && (launch.is_captured || launch.turn == turn_);
}

void Comm::complain_if_late(const Launch& launch) const {
  const double patience = settings().nccl_patience_s;
  if (patience < 0 || Clock::now() - launch.since < std::chrono::duration<double>{patience}) return;
  std::string waits;
  for (const auto& connection : place_.connections)
    if (connection && !connection->is_idle()) waits += (waits.empty() ? "" : "; ") + connection->text();
  found(fmt::format("NCCL's rank {} is stuck after {} s in {}: {}", place_.rank, patience, launch.piece.text(), waits));
}

ncclResult_t Comm::finalize(const Injected& fault) {
  {
    const std::lock_guard lock{mutex_};
    if (phase_ != Phase::running) {
      problem_ = "ncclCommFinalize was called before";
      return ncclInvalidArgument;
    }
    phase_ = Phase::finalizing;
    in_progress_ = "ncclCommFinalize";
    stuck_ = fault.kind == FaultKind::hang;
    if (fault.kind == FaultKind::late) fail(fault.result, "an injected fault of ncclCommFinalize");
    changed_.notify_all();
  }
  return settle();
}

ncclResult_t Comm::stay_in_call(const char* call) {
  {
    const std::lock_guard lock{mutex_};
    in_progress_ = call;
    stuck_ = true;
  }
  return settle();
}

ncclResult_t Comm::destroy() {
  {
    const std::lock_guard lock{mutex_};
    if (error_ != ncclSuccess && unfinished_ > 0)
      found("ncclCommDestroy after an asynchronous error, with operations that only ncclCommAbort ends");
    if (phase_ == Phase::running) {
      phase_ = Phase::finalizing;
      in_progress_ = "ncclCommDestroy";
    }
  }
  const ncclResult_t result = wait();
  abort();
  return result;
}

void Comm::abort() {
  const std::lock_guard lock{mutex_};
  phase_ = Phase::ended;
  in_progress_.clear();
  rendezvous_.reset();
  for (const auto& connection : place_.connections)
    if (connection) connection->clear();
  fail(ncclInternalError, "the communicator was aborted");
  deferred_.reset();
  running_.reset();
  changed_.notify_all();
}

bool Comm::is_finalized() {
  const std::lock_guard lock{mutex_};
  return phase_ == Phase::finalized || phase_ == Phase::ended;
}

std::string Comm::problem() {
  const std::lock_guard lock{mutex_};
  return problem_;
}

}  // namespace cusim
