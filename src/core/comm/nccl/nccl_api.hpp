// The seam between this backend and NCCL: one method for each call that is used, and nothing in between. Tests provide
// their own, to see the order of calls, results that stay in progress, failures and aborts without a GPU.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include <nccl.h>

#include <lockstep/core/device/stream.hpp>

namespace lockstep {

/// NCCL's calls, in NCCL's words. Two threads must not call it at the same time on one communicator, except for
/// `comm_abort`.
class NcclApi {
 public:
  virtual ~NcclApi() = default;

  /// NCCL_VERSION_CODE of the library at run time; 0 if it does not say.
  virtual int version() = 0;

  virtual ncclResult_t get_unique_id(ncclUniqueId* id) = 0;

  /// ncclCommInitRankConfig with `blocking` 0, for the calling thread's GPU. No call on this communicator waits for
  /// another rank, and each may return ncclInProgress.
  virtual ncclResult_t comm_init(ncclComm_t* comm, int size, const ncclUniqueId& id, int rank) = 0;
  virtual ncclResult_t comm_get_async_error(ncclComm_t comm, ncclResult_t* state) = 0;
  virtual ncclResult_t comm_finalize(ncclComm_t comm) = 0;
  virtual ncclResult_t comm_destroy(ncclComm_t comm) = 0;
  virtual ncclResult_t comm_abort(ncclComm_t comm) = 0;

  virtual ncclResult_t group_start() = 0;
  virtual ncclResult_t group_end() = 0;

  virtual ncclResult_t send(const void* from, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                            Stream& stream) = 0;
  virtual ncclResult_t recv(void* to, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                            Stream& stream) = 0;
  virtual ncclResult_t broadcast(const void* from, void* to, std::size_t count, ncclDataType_t type, int root,
                                 ncclComm_t comm, Stream& stream) = 0;
  virtual ncclResult_t all_reduce(const void* from, void* to, std::size_t count, ncclDataType_t type, ncclRedOp_t op,
                                  ncclComm_t comm, Stream& stream) = 0;
  virtual ncclResult_t reduce(const void* from, void* to, std::size_t count, ncclDataType_t type, ncclRedOp_t op,
                              int root, ncclComm_t comm, Stream& stream) = 0;

  /// DeviceError if work that was enqueued on the GPU earlier has failed. `call` is the call that found it.
  virtual void check_device(const char* /*call*/) {}

  /// NCCL's text for `result`, and its last complaint, in one line.
  virtual std::string error_text(ncclResult_t result) = 0;
};

/// The library that this program is linked with.
std::shared_ptr<NcclApi> real_nccl_api();

}  // namespace lockstep
