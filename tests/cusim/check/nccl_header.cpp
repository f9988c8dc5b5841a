// What a program sees of nccl.h. Compiled with cusim's header and, where there is one, with NCCL's own, of 2.28: what
// holds of both is what cusim may promise.
#include <cstddef>
#include <type_traits>

#include <nccl.h>

namespace {

template <class Function, class... Arguments>
constexpr bool takes = std::is_same_v<Function, ncclResult_t (*)(Arguments...)>;

static_assert(NCCL_VERSION_CODE / 100 == 228 && NCCL_VERSION(2, 28, 9) == 22809 && NCCL_UNIQUE_ID_BYTES == 128);
static_assert(sizeof(ncclUniqueId) == 128 && sizeof(ncclConfig_t) == 80 && NCCL_CONFIG_UNDEF_INT == INT_MIN);
static_assert(offsetof(ncclConfig_t, magic) == 8 && offsetof(ncclConfig_t, version) == 12 &&
              offsetof(ncclConfig_t, blocking) == 16 && offsetof(ncclConfig_t, netName) == 32 &&
              offsetof(ncclConfig_t, splitShare) == 40 && offsetof(ncclConfig_t, commName) == 48 &&
              offsetof(ncclConfig_t, collnetEnable) == 56 && offsetof(ncclConfig_t, nvlinkCentricSched) == 76);

static_assert(ncclSuccess == 0 && ncclUnhandledCudaError == 1 && ncclSystemError == 2 && ncclInternalError == 3 &&
              ncclInvalidArgument == 4 && ncclInvalidUsage == 5 && ncclRemoteError == 6 && ncclInProgress == 7);
static_assert(ncclInt8 == 0 && ncclUint8 == 1 && ncclInt32 == 2 && ncclUint32 == 3 && ncclInt64 == 4 &&
              ncclUint64 == 5 && ncclFloat16 == 6 && ncclFloat32 == 7 && ncclFloat64 == 8 && ncclBfloat16 == 9 &&
              ncclFloat8e4m3 == 10 && ncclFloat8e5m2 == 11 && ncclNumTypes == 12);
static_assert(ncclSum == 0 && ncclProd == 1 && ncclMax == 2 && ncclMin == 3 && ncclAvg == 4 && ncclNumOps == 5 &&
              ncclMaxRedOp == 0x7fffffff);

constexpr ncclConfig_t made = NCCL_CONFIG_INITIALIZER;
static_assert(made.size == sizeof(ncclConfig_t) && made.magic == 0xcafebeef && made.version == NCCL_VERSION_CODE &&
              made.blocking == INT_MIN && !made.netName && !made.commName && made.nvlinkCentricSched == INT_MIN);

using From = const void*;
using To = void*;
using Count = std::size_t;
using Type = ncclDataType_t;
using Op = ncclRedOp_t;
using Comm = ncclComm_t;
using Stream = cudaStream_t;

static_assert(takes<decltype(&ncclGetVersion), int*> && takes<decltype(&ncclGetUniqueId), ncclUniqueId*>);
static_assert(takes<decltype(&ncclCommInitRank), Comm*, int, ncclUniqueId, int> &&
              takes<decltype(&ncclCommInitRankConfig), Comm*, int, ncclUniqueId, int, ncclConfig_t*>);
static_assert(takes<decltype(&ncclCommFinalize), Comm> && takes<decltype(&ncclCommDestroy), Comm> &&
              takes<decltype(&ncclCommAbort), Comm> && takes<decltype(&ncclCommGetAsyncError), Comm, ncclResult_t*>);
static_assert(takes<decltype(&ncclCommCount), Comm, int*> && takes<decltype(&ncclCommCuDevice), Comm, int*> &&
              takes<decltype(&ncclCommUserRank), Comm, int*>);
static_assert(takes<decltype(&ncclGroupStart)> && takes<decltype(&ncclGroupEnd)>);
static_assert(takes<decltype(&ncclSend), From, Count, Type, int, Comm, Stream> &&
              takes<decltype(&ncclRecv), To, Count, Type, int, Comm, Stream>);
static_assert(takes<decltype(&ncclBroadcast), From, To, Count, Type, int, Comm, Stream> &&
              takes<decltype(&ncclAllGather), From, To, Count, Type, Comm, Stream>);
static_assert(takes<decltype(&ncclAllReduce), From, To, Count, Type, Op, Comm, Stream> &&
              takes<decltype(&ncclReduce), From, To, Count, Type, Op, int, Comm, Stream> &&
              takes<decltype(&ncclReduceScatter), From, To, Count, Type, Op, Comm, Stream>);
static_assert(std::is_same_v<decltype(&ncclGetErrorString), const char* (*)(ncclResult_t)> &&
              std::is_same_v<decltype(&ncclGetLastError), const char* (*)(Comm)>);

}  // namespace
