// One communicator of NCCL's, owned once: every call on it is checked, waited for and kept to one thread at a time.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include <lockstep/base/error.hpp>

#include "comm/nccl/nccl_api.hpp"
#include "comm/nccl/waiting.hpp"

namespace lockstep {

/// How long each wait for NCCL may take.
struct NcclLimits {
  /// Until a collective is enqueued. The first between two ranks connects them, so this waits for the other's call too;
  /// a rank that never comes is the watchdog's to find.
  Seconds enqueue{600};
  /// Until the other ranks have finalized too.
  Seconds finalize{10};
  /// Until ncclCommAbort returns. It has been seen to hang, and must not hold up the end of the job.
  Seconds abort{5};
};

/// What a communicator needs of the world around it.
struct NcclTools {
  std::shared_ptr<NcclApi> api;
  std::shared_ptr<PollClock> clock;
  std::shared_ptr<Ticker> ticker;  ///< of the thread that watches for failures
  NcclLimits limits;
};

/// The linked NCCL, the machine's time, a look for failures every 100 ms.
NcclTools real_nccl_tools();

/// A wait for NCCL that took longer than it may.
class NcclTimeout : public CommError {
 public:
  using CommError::CommError;
};

/// A call of NCCL's and what it returned.
struct NcclCall {
  const char* name;
  ncclResult_t result;
};

/// ncclSuccess and ncclInProgress are none.
bool is_failure(ncclResult_t result);

/// CommError with the call, the device, the rank and NCCL's text if `call` failed.
void check_nccl(NcclApi& api, NcclCall call, const std::string& device, int rank);

/// A communicator of NCCL's. One thread uses it; `abort` and `failure` may be called by others meanwhile.
///
/// NCCL's user guide ("Thread Safety") allows several threads to operate a communicator as long as only one does at a
/// time, and makes no exception for ncclCommGetAsyncError: so a mutex is held for each call. It is free between two
/// looks at a call in progress. ncclCommAbort alone may come at any point ("Fault Tolerance").
class NcclHandle {
 public:
  /// Of `rank` on the device that messages call `device`. Does not call NCCL.
  NcclHandle(NcclTools tools, int rank, std::string device);
  NcclHandle(const NcclHandle&) = delete;
  NcclHandle& operator=(const NcclHandle&) = delete;

  /// Unless aborted: ncclCommFinalize, which waits for the other ranks to do the same, then ncclCommDestroy. Aborts
  /// where that fails or takes too long.
  ~NcclHandle();

  /// Enters ncclCommInitRankConfig and blocks until it is done. NcclTimeout, or CommError if it failed. At most once.
  void start(int size, const ncclUniqueId& id, Patience& patience);

  using Body = std::function<NcclCall(NcclApi&, ncclComm_t)>;

  /// Looks for an earlier failure, then makes the call of `body`, and blocks until what it enqueues is on its stream:
  /// an event recorded before that would come too early. CommError; `purpose` names the collective.
  void call(const char* purpose, const Body& body);
  void call(const char* purpose, const Body& body, Patience& patience);

  /// CommError if a collective enqueued earlier is known to have failed.
  void check(const char* purpose);

  /// The failure of a collective enqueued earlier, the first time anyone learns of it: a failure that `call` or `check`
  /// has thrown is old. Does not block: nothing is learnt while another thread is inside NCCL.
  std::optional<std::string> failure() noexcept;

  /// ncclCommAbort, on a thread that is waited for no longer than it may take. The second call does nothing.
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
  void finish();
  void run_abort();

  NcclTools tools_;
  int rank_;
  std::string device_;
  std::shared_ptr<State> state_ = std::make_shared<State>();
  std::atomic<bool> failure_known_{false};
  ncclComm_t comm_ = nullptr;
};

}  // namespace lockstep
