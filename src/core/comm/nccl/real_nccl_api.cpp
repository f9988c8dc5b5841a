// The NcclApi that calls the library.
#include <algorithm>

#include <fmt/format.h>

#include "core/comm/nccl/nccl_api.hpp"
#include "core/device/cuda/native.hpp"

namespace lockstep {
namespace {

using detail::native;

class RealNcclApi final : public NcclApi {
 public:
  int version() override {
    int version = 0;
    return ncclGetVersion(&version) == ncclSuccess ? version : 0;
  }

  ncclResult_t get_unique_id(ncclUniqueId* id) override { return ncclGetUniqueId(id); }

  ncclResult_t comm_init(ncclComm_t* comm, int size, const ncclUniqueId& id, int rank) override {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    return ncclCommInitRankConfig(comm, size, id, rank, &config);
  }
  ncclResult_t comm_get_async_error(ncclComm_t comm, ncclResult_t* state) override {
    return ncclCommGetAsyncError(comm, state);
  }
  ncclResult_t comm_finalize(ncclComm_t comm) override { return ncclCommFinalize(comm); }
  ncclResult_t comm_destroy(ncclComm_t comm) override { return ncclCommDestroy(comm); }
  ncclResult_t comm_abort(ncclComm_t comm) override { return ncclCommAbort(comm); }

  ncclResult_t group_start() override { return ncclGroupStart(); }
  ncclResult_t group_end() override { return ncclGroupEnd(); }

  ncclResult_t send(const void* from, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                    Stream& stream) override {
    return ncclSend(from, count, type, peer, comm, native(stream));
  }
  ncclResult_t recv(void* to, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                    Stream& stream) override {
    return ncclRecv(to, count, type, peer, comm, native(stream));
  }
  ncclResult_t broadcast(const void* from, void* to, std::size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                         Stream& stream) override {
    return ncclBroadcast(from, to, count, type, root, comm, native(stream));
  }
  ncclResult_t all_reduce(const void* from, void* to, std::size_t count, ncclDataType_t type, ncclRedOp_t op,
                          ncclComm_t comm, Stream& stream) override {
    return ncclAllReduce(from, to, count, type, op, comm, native(stream));
  }
  ncclResult_t reduce(const void* from, void* to, std::size_t count, ncclDataType_t type, ncclRedOp_t op, int root,
                      ncclComm_t comm, Stream& stream) override {
    return ncclReduce(from, to, count, type, op, root, comm, native(stream));
  }

  void check_device(const char* call) override { detail::check_cuda(detail::late_failure(), call); }

  std::string error_text(ncclResult_t result) override {
    std::string text = ncclGetErrorString(result);
    // NCCL keeps one last complaint for all communicators and ignores the argument.
    if (const char* const complaint = ncclGetLastError(nullptr); complaint && *complaint)
      text += fmt::format(" ({})", complaint);
    std::replace(text.begin(), text.end(), '\n', ' ');
    return text;
  }
};

}  // namespace

std::shared_ptr<NcclApi> real_nccl_api() {
  return std::make_shared<RealNcclApi>();
}

}  // namespace lockstep
