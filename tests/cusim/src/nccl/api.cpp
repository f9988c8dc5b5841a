// NCCL's functions: their arguments are checked here, and faults that make a call itself fail.
#include <utility>

#include <fmt/format.h>
#include <nccl.h>

#include "../core.hpp"
#include "group.hpp"
#include "sums.hpp"
#include "use.hpp"

using namespace cusim;

namespace {

ncclResult_t fail_with(const Injected& fault, const char* call) {
  return complain(fault.result, fmt::format("an injected fault of {}", call));
}

bool fails_at_once(const Injected& fault) {
  return fault.kind == FaultKind::error || fault.kind == FaultKind::memory;
}

/// Counts the call, and asks for its fault.
Injected begin(const char* call) {
  count(call);
  const FaultKind kind = fault_at(call);
  const int code = kind == FaultKind::none ? 0 : fault_code();
  if (code > ncclSuccess && code < ncclInProgress) return {kind, static_cast<ncclResult_t>(code)};
  return {kind, kind == FaultKind::memory ? ncclUnhandledCudaError : ncclSystemError};
}

ncclResult_t invalid(const char* call, const std::string& what) {
  return complain(ncclInvalidArgument, fmt::format("{}: {}", call, what));
}

ncclResult_t with_words(ncclResult_t result, Comm& comm) {
  const bool failed = result != ncclSuccess && result != ncclInProgress;
  return failed ? complain(result, comm.problem()) : result;
}

ncclResult_t init(ncclComm_t* handle, int size, const ncclUniqueId& id, int rank, bool blocking, const char* call) {
  const Injected fault = begin(call);
  if (!handle) return invalid(call, "no place for the communicator");
  *handle = nullptr;
  if (fails_at_once(fault)) return fail_with(fault, call);
  if (size < 1 || rank < 0 || rank >= size) return invalid(call, fmt::format("rank {} of {}", rank, size));
  if (in_group()) found(fmt::format("{} in a group, which cusim does not have", call));
  if (late_failure() != cudaSuccess) return complain(ncclUnhandledCudaError, "the GPU has failed");
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0)
    return complain(ncclUnhandledCudaError, "there is no GPU");
  const auto comm = Comm::make({id, size, rank, current_device(), blocking, fault});
  *handle = publish(comm);
  const ncclResult_t result = comm->settle();
  // A call that blocks and fails leaves no communicator.
  if (result != ncclSuccess && blocking) {
    const std::string problem = comm->problem();
    comm->abort();
    withdraw(std::exchange(*handle, nullptr));
    return complain(result, problem);
  }
  return with_words(result, *comm);
}

/// Ends the process unless NCCL may use the buffer.
void check_buffer(Range range, const Comm& comm, const char* call) {
  if (range.bytes == 0) return;
  const Memory memory = memory_at(range.begin);
  if (memory.kind == MemoryKind::unknown)
    found(fmt::format("{}: foreign memory: {} is neither on a GPU nor pinned, or was freed", call,
                      static_cast<const void*>(range.begin)));
  if (range.bytes > memory.bytes - static_cast<std::size_t>(range.begin - memory.begin))
    found(fmt::format(
        "{}: foreign memory: {} bytes from {} on, in an allocation of {} bytes that begins {} bytes before", call,
        range.bytes, static_cast<const void*>(range.begin), memory.bytes, range.begin - memory.begin));
  if (memory.kind == MemoryKind::device && memory.device != comm.device())
    found(fmt::format("{}: foreign memory: of GPU {}, while the communicator is on GPU {}", call, memory.device,
                      comm.device()));
}

/// Whether a fault hangs a call here rather than its work.
bool hangs_in_call() {
  const Hang hang = settings().hang;
  return hang == Hang::drawn ? draw("nccl hang in call", 3) == 0 : hang == Hang::call;
}

/// The order of a sum: of this seed's, and the same for every call of its kind and size, as with the algorithm that
/// NCCL picks by these.
std::uint64_t order_of(const Header& header) {
  std::uint64_t order = settings().seed;
  for (const std::uint64_t part : {static_cast<std::uint64_t>(header.kind), static_cast<std::uint64_t>(header.type),
                                   static_cast<std::uint64_t>(header.op), static_cast<std::uint64_t>(header.count)})
    order = mix(order, part);
  return order;
}

ncclResult_t submit(ncclComm_t handle, Call call) {
  const char* const name = call.name();
  call.fault = begin(name);
  if (fails_at_once(call.fault)) return failed_in_group(fail_with(call.fault, name));
  if (!handle) return failed_in_group(invalid(name, "no communicator"));
  const Use use{handle, name};
  if (use->is_finalized()) found(fmt::format("{} on a communicator that was finalized", name));
  if (late_failure() != cudaSuccess) return failed_in_group(complain(ncclUnhandledCudaError, "the GPU has failed"));
  const Header& header = call.header;
  const auto type = static_cast<ncclDataType_t>(header.type);
  const bool reduces =
      header.kind == Kind::all_reduce || header.kind == Kind::reduce || header.kind == Kind::reduce_scatter;
  if (bytes_of(type) == 0 || (reduces && !can_reduce(type))) return failed_in_group(invalid(name, "this type"));
  if (header.op < 0 || header.op >= ncclNumOps) return failed_in_group(invalid(name, "this operation"));
  if (header.root < 0 || header.root >= use->size())
    return failed_in_group(invalid(name, fmt::format("rank {} of {}", header.root, use->size())));
  if (const ncclResult_t state = use->look(); state != ncclSuccess)
    return failed_in_group(complain(state, use->problem()));
  Place place{use->rank(), use->size(), use->device(), {}};
  check_buffer(range_read(call, place), *use.comm(), name);
  check_buffer(range_written(call, place), *use.comm(), name);
  if (header.kind != Kind::send && header.count == 0) return ncclSuccess;
  if (call.fault.kind == FaultKind::hang && !in_group() && hangs_in_call()) return use->stay_in_call(name);
  if (reduces) call.header.seed = order_of(header);
  return with_words(add(use.comm(), call), *use.comm());
}

Call make_call(Kind kind, const void* from, void* to, std::size_t count, ncclDataType_t type, ncclRedOp_t op, int root,
               cudaStream_t stream) {
  Call call;
  call.header = {kind, type, op, root, count, 0};
  call.from = static_cast<const std::byte*>(from);
  call.to = static_cast<std::byte*>(to);
  call.stream = stream;
  return call;
}

template <class Value>
ncclResult_t tell(ncclComm_t handle, int* to, const char* call, Value value) {
  const Injected fault = begin(call);
  if (fails_at_once(fault)) return fail_with(fault, call);
  if (!handle || !to) return invalid(call, "an argument is null");
  const Use use{handle, call};
  *to = value(*use.comm());
  return ncclSuccess;
}

}  // namespace

ncclResult_t ncclGetVersion(int* version) {
  const Injected fault = begin("ncclGetVersion");
  if (fails_at_once(fault)) return fail_with(fault, "ncclGetVersion");
  if (!version) return invalid("ncclGetVersion", "an argument is null");
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  const Injected fault = begin("ncclGetUniqueId");
  if (fault.kind == FaultKind::hang) hang();
  if (fault.kind != FaultKind::none) return fail_with(fault, "ncclGetUniqueId");
  if (!id) return invalid("ncclGetUniqueId", "an argument is null");
  make_unique_id(*id);
  return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclSuccess: return "no error";
    case ncclUnhandledCudaError: return "unhandled cuda error";
    case ncclSystemError: return "unhandled system error";
    case ncclInternalError: return "internal error";
    case ncclInvalidArgument: return "invalid argument";
    case ncclInvalidUsage: return "invalid usage";
    case ncclRemoteError: return "remote process exited or there was a network error";
    case ncclInProgress: return "NCCL operation in progress";
    case ncclNumResults: break;
  }
  return "unknown result code";
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int size, ncclUniqueId id, int rank, ncclConfig_t* config) {
  constexpr const char* call = "ncclCommInitRankConfig";
  const ncclConfig_t made = NCCL_CONFIG_INITIALIZER;
  bool blocking = true;
  if (config) {
    if (config->magic != made.magic || config->size != made.size)
      return invalid(call, "ncclConfig_t was not initialized with NCCL_CONFIG_INITIALIZER");
    if (config->blocking != NCCL_CONFIG_UNDEF_INT && config->blocking != 0 && config->blocking != 1)
      return invalid(call, "ncclConfig_t::blocking is neither 0 nor 1");
    blocking = config->blocking != 0;
  }
  return init(comm, size, id, rank, blocking, call);
}

ncclResult_t ncclCommInitRank(ncclComm_t* comm, int size, ncclUniqueId id, int rank) {
  return init(comm, size, id, rank, true, "ncclCommInitRank");
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state) {
  constexpr const char* call = "ncclCommGetAsyncError";
  const Injected fault = begin(call);
  if (fault.kind == FaultKind::hang) hang();
  if (fails_at_once(fault)) return fail_with(fault, call);
  if (!comm || !state) return invalid(call, "an argument is null");
  const Use use{comm, call, During::progress};
  *state = with_words(use->look(), *use.comm());
  return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  constexpr const char* call = "ncclCommFinalize";
  const Injected fault = begin(call);
  if (fails_at_once(fault)) return fail_with(fault, call);
  if (!comm) return invalid(call, "no communicator");
  const Use use{comm, call};
  return with_words(use->finalize(fault), *use.comm());
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  constexpr const char* call = "ncclCommDestroy";
  const Injected fault = begin(call);
  if (fault.kind == FaultKind::hang) hang();
  if (fails_at_once(fault)) return fail_with(fault, call);
  if (!comm) return ncclSuccess;
  const Use use{comm, call};
  const ncclResult_t result = use->destroy();
  withdraw(comm);
  return with_words(result, *use.comm());
}

ncclResult_t ncclCommAbort(ncclComm_t handle) {
  constexpr const char* call = "ncclCommAbort";
  const Injected fault = begin(call);
  if (fault.kind == FaultKind::hang) hang();
  if (!handle) return ncclSuccess;
  const auto comm = find(handle, call);
  withdraw(handle);
  comm->abort();
  return fault.kind == FaultKind::none ? ncclSuccess : fail_with(fault, call);
}

ncclResult_t ncclCommCount(const ncclComm_t comm, int* count) {
  return tell(comm, count, "ncclCommCount", [](const Comm& of) { return of.size(); });
}
ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int* device) {
  return tell(comm, device, "ncclCommCuDevice", [](const Comm& of) { return of.device(); });
}
ncclResult_t ncclCommUserRank(const ncclComm_t comm, int* rank) {
  return tell(comm, rank, "ncclCommUserRank", [](const Comm& of) { return of.rank(); });
}

ncclResult_t ncclGroupStart() {
  const Injected fault = begin("ncclGroupStart");
  return fails_at_once(fault) ? fail_with(fault, "ncclGroupStart") : start_group();
}

ncclResult_t ncclGroupEnd() {
  const Injected fault = begin("ncclGroupEnd");
  if (fault.kind == FaultKind::hang) hang();
  if (fails_at_once(fault)) failed_in_group(fail_with(fault, "ncclGroupEnd"));
  return end_group();
}

ncclResult_t ncclSend(const void* from, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return submit(comm, make_call(Kind::send, from, nullptr, count, type, ncclSum, peer, stream));
}

ncclResult_t ncclRecv(void* to, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream) {
  Call call = make_call(Kind::send, nullptr, to, count, type, ncclSum, peer, stream);
  call.receives = true;
  return submit(comm, call);
}

ncclResult_t ncclBroadcast(const void* from, void* to, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                           cudaStream_t stream) {
  return submit(comm, make_call(Kind::broadcast, from, to, count, type, ncclSum, root, stream));
}

ncclResult_t ncclAllReduce(const void* from, void* to, size_t count, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream) {
  return submit(comm, make_call(Kind::all_reduce, from, to, count, type, op, 0, stream));
}

ncclResult_t ncclReduce(const void* from, void* to, size_t count, ncclDataType_t type, ncclRedOp_t op, int root,
                        ncclComm_t comm, cudaStream_t stream) {
  return submit(comm, make_call(Kind::reduce, from, to, count, type, op, root, stream));
}

ncclResult_t ncclReduceScatter(const void* from, void* to, size_t count, ncclDataType_t type, ncclRedOp_t op,
                               ncclComm_t comm, cudaStream_t stream) {
  return submit(comm, make_call(Kind::reduce_scatter, from, to, count, type, op, 0, stream));
}

ncclResult_t ncclAllGather(const void* from, void* to, size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream) {
  return submit(comm, make_call(Kind::all_gather, from, to, count, type, ncclSum, 0, stream));
}
