// One NCCL communicator, owned once. Every call on it is checked, waited for and kept to one thread at a time.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include <lockstep/core/base/error.hpp>

#include "core/comm/nccl/nccl_api.hpp"
#include "core/comm/nccl/ticker.hpp"
#include "core/device/poll_clock.hpp"

namespace lockstep {

/// How long each wait for NCCL may take.
struct NcclLimits {
  /// Until a collective is enqueued. The first collective between two ranks connects them, so this also waits for the
  /// other's call. The watchdog finds a rank that never comes.
  Seconds enqueue{600};
  /// Until the other ranks have finalized as well.
  Seconds finalize{10};
  /// Until ncclCommAbort or ncclCommDestroy returns. An abort has been seen to hang, and must not delay the end of the
  /// job.
  Seconds abort{5};
  /// How long a rank that only sees the consequences of a failure waits, so that the rank that failed, or one that
  /// watches it, can report it and end the job first.
  Seconds word_of_others{1};
};

/// What a communicator needs from its surroundings.
struct NcclTools {
  std::shared_ptr<NcclApi> api;
  std::shared_ptr<PollClock> clock;
  std::shared_ptr<Ticker> ticker;  ///< for the thread that watches for failures
  NcclLimits limits;
  std::function<std::uint64_t()> progress = {};  ///< NcclOptions::progress
};

inline constexpr Seconds watch_beat{0.1};

/// The linked NCCL, the machine's time, and a look for failures at each watch_beat.
NcclTools real_nccl_tools();

/// A wait for NCCL exceeded its limit.
struct NcclTimeout : CommError {
  using CommError::CommError;
};

/// Another rank failed or ended, as NCCL reports it: that rank knows more.
struct NcclRemoteError : CommError {
  using CommError::CommError;
};

/// An NCCL call and its result.
struct NcclCall {
  const char* name;
  ncclResult_t result;
};

/// False for ncclSuccess and ncclInProgress.
bool is_failure(ncclResult_t result);

/// The number by which messages name this rank, which NCCL calls `rank`: that of the log, which is MPI_COMM_WORLD's
/// also if the runtime is a guest. GPUs are named so, too.
int rank_in_messages(int rank);

/// CommError with the call, the device, the rank and NCCL's text, if `call` failed; NcclRemoteError if another rank
/// did. DeviceError if the call only found that earlier work on the GPU had failed.
void check_nccl(NcclApi& api, NcclCall call, const std::string& device, int rank);

/// An NCCL communicator. One thread uses it; others may call `abort` and `failure` meanwhile.
///
/// NCCL's user guide ("Thread Safety") allows several threads to operate a communicator as long as only one does so at
/// a time, and makes no exception for ncclCommGetAsyncError. So each call holds a mutex. It is free between two looks
/// at a call in progress. Only ncclCommAbort may come at any point ("Fault Tolerance").
class NcclHandle {
 public:
  /// For `rank`, on the device that messages call `device`. Does not call NCCL.
  NcclHandle(NcclTools tools, int rank, std::string device);
  NcclHandle(const NcclHandle&) = delete;
  NcclHandle& operator=(const NcclHandle&) = delete;

  /// Unless aborted, calls ncclCommFinalize, which waits for the other ranks to do the same, then ncclCommDestroy.
  /// Aborts if that fails or takes too long.
  ~NcclHandle();

  /// Calls ncclCommInitRankConfig and blocks until it is done. NcclTimeout if that takes too long, CommError if it
  /// fails. At most once.
  void start(int size, const ncclUniqueId& id, Patience& patience);

  using Body = std::function<NcclCall(NcclApi&, ncclComm_t)>;

  /// Looks for an earlier failure, then makes the call in `body`, and blocks until what it enqueues is on its stream:
  /// an event recorded before that would come too early. CommError; `purpose` names the collective.
  void call(const char* purpose, const Body& body);
  void call(const char* purpose, const Body& body, Patience& patience);

  /// CommError if a collective enqueued earlier is known to have failed. If that is because of another rank, that rank
  /// gets time to say so first.
  void check(const char* purpose);

  struct Failure {
    std::string text;
    bool is_remote = false;  ///< another rank's, as far as NCCL knows
  };

  /// The failure of a collective enqueued earlier, the first time that anyone learns of it; a failure that `call` or
  /// `check` has thrown is not new. Does not block: learns nothing while another thread is inside NCCL.
  std::optional<Failure> failure() noexcept;

  bool is_given_up() const { return state_->given_up; }

  /// Runs ncclCommAbort on a thread of its own, and waits for it no longer than its limit. A second call does nothing.
  void abort() noexcept;

 private:
  /// Shared with the thread of an abort, which may outlive this object.
  struct State {
    std::timed_mutex mutex;
    std::atomic<bool> given_up{false};
  };

  void require_usable(const char* purpose) const;
  ncclResult_t look(const char* purpose);
  NcclCall settle(NcclCall call, Patience& patience);
  void require_success(NcclCall call);
  void await_word_of_others(ncclResult_t result);
  void finish();
  void run_abort();
  std::optional<ncclResult_t> call_for(Seconds limit, const char* name, std::function<ncclResult_t()> call);

  NcclTools tools_;
  int rank_;
  std::string device_;
  std::shared_ptr<State> state_ = std::make_shared<State>();
  std::atomic<bool> failure_known_{false};
  ncclComm_t comm_ = nullptr;
};

}  // namespace lockstep
