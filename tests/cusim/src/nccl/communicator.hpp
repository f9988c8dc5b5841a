// A communicator: what is asked of it, what it has under way, and how it ends.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <nccl.h>

#include "operation.hpp"
#include "rendezvous.hpp"

namespace cusim {

/// May be used from any thread: its users are the program's calls, its works on streams, and a thread of its own, which
/// goes on with what the program does not wait for. What may not be called when is checked here; that no two threads
/// call at the same time is checked by `Use` (use.hpp).
class Comm : public std::enable_shared_from_this<Comm> {
 public:
  struct Setup {
    ncclUniqueId id;
    int size;
    int rank;
    int device;
    bool blocking;
    Injected fault;  ///< of the start
  };
  static std::shared_ptr<Comm> make(const Setup& setup);

  int size() const { return place_.size; }
  int rank() const { return place_.rank; }
  int device() const { return place_.device; }

  /// What the program has called that is not done, as for "while X is in progress"; else empty. What a call in a
  /// blocking communicator would wait for is never in progress outside of it.
  std::string in_progress();

  /// The asynchronous error, or ncclInProgress, or ncclSuccess. Goes on with what is in progress.
  ncclResult_t look();

  /// Enqueues `calls`, now or, if the communicator does not block, perhaps later: ncclInProgress.
  ncclResult_t launch(std::vector<Call> calls);
  ncclResult_t finalize(const Injected& fault);
  /// A fault: the call that nothing comes of, until it is aborted.
  ncclResult_t stay_in_call(const char* call);
  /// Blocks until it is finalized. Nothing may use it from then on.
  ncclResult_t destroy();
  /// Ends all that it has enqueued, wherever that is, and its connections. Does not block.
  void abort();

  /// Blocks until nothing is in progress if the communicator blocks. The result of the call that was made.
  ncclResult_t settle();

  bool is_finalized();
  /// The last problem in words.
  std::string problem();

  // For Use.
  std::atomic<const char*> inside{nullptr};  ///< the call that a thread is in
  std::atomic<int> inside_thread{0};
  std::atomic<int> group_thread{0};  ///< the thread that has it in a group

 private:
  enum class Phase { starting, running, finalizing, finalized, ended };
  using Clock = std::chrono::steady_clock;

  /// A piece on its way through its streams.
  struct Launch {
    Piece piece;
    std::vector<cudaStream_t> streams;
    std::uint64_t turn = 0;
    bool is_captured = false;
    bool started = false;
    bool done = false;
    Clock::time_point since{};
  };

  explicit Comm(const Setup& setup);
  void start_thread();
  void serve();
  bool needs_service() const;
  enum class Asker { program, thread };
  void advance(std::unique_lock<std::mutex>& lock, Asker asker);
  bool is_due(Asker asker);
  void advance_start();
  void advance_end();
  void pump();
  void look_at_peers();
  void fail(ncclResult_t error, const std::string& problem);
  ncclResult_t enqueue(std::unique_lock<std::mutex>& lock, const std::shared_ptr<Launch>& launch);
  cudaError_t enqueue_on_streams(const std::shared_ptr<Launch>& launch);
  bool run(const std::shared_ptr<Launch>& launch);
  bool may_start(const Launch& launch) const;
  void complain_if_late(const Launch& launch) const;
  ncclResult_t state() const;
  ncclResult_t wait();

  std::mutex mutex_;
  std::condition_variable changed_;
  Place place_;
  const bool blocking_;
  Phase phase_ = Phase::starting;
  std::optional<Rendezvous> rendezvous_;
  ncclResult_t error_ = ncclSuccess;
  std::string problem_;
  std::string in_progress_;
  bool stuck_ = false;  ///< a fault: what is in progress stays so
  Injected start_fault_;
  std::shared_ptr<Launch> deferred_;  ///< not enqueued yet, though the program has called it
  int looks_left_ = 0;
  Clock::time_point deferred_since_{};
  std::shared_ptr<Launch> running_;
  std::uint64_t next_turn_ = 0, turn_ = 0;
  int unfinished_ = 0;
  bool said_goodbye_ = false;
  Outstanding goodbyes_;
};

}  // namespace cusim
