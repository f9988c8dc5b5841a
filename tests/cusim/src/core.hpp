// What the three simulated libraries share. cusim's libcudart defines it and exports it; its libcublasLt and libnccl
// use it. Kernels use include/cusim_device.hpp instead. A program under test sees none of this: it calls CUDA's,
// cuBLASLt's and NCCL's own functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include <cuda_runtime_api.h>

namespace [[gnu::visibility("default")]] cusim {

// --- Settings, each read once from the environment of the process ---

enum class Order {
  late,    ///< nothing runs before somebody waits or asks; then one piece of work of a random stream after another
  eager,   ///< each piece runs in the call that enqueues it, if it can
  thread,  ///< a thread of its own runs pieces at random moments
};

/// Where a fault hangs an operation of NCCL.
enum class Hang {
  drawn,   ///< at one of the other places
  call,    ///< in the call, unless that is in a group
  start,   ///< before the first byte is sent
  middle,  ///< when half of the bytes are sent
};

struct Settings {
  std::uint64_t seed = 1;     ///< CUSIM_SEED: what is drawn is drawn from it and from CUSIM_RANK or the MPI rank
  Order order = Order::late;  ///< CUSIM_ORDER
  std::uint64_t memory_bytes = std::uint64_t{4} << 30;  ///< CUSIM_MEMORY: of each GPU
  int devices = 1;                                      ///< CUSIM_DEVICES: GPUs in this machine; 0 is a machine without
  int patience_ms = 50;         ///< CUSIM_PATIENCE_MS: in `late`, work runs by itself after this long without a call of
                                ///< the host, as it does on silicon; negative: never
  bool check_kernels = true;    ///< CUSIM_CHECKS=none leaves out what kernels are checked for
  bool guard_memory = true;     ///< CUSIM_GUARD=off lets the host read and write GPU memory unnoticed
  unsigned most_blocks = 0;     ///< CUSIM_MOST_BLOCKS: no grid has more blocks in a dimension; 0 is no limit
  bool sums_by_rank = false;    ///< CUSIM_NCCL_ORDER=ring: NCCL sums in the order of ranks, else in a drawn one
  Hang hang = Hang::drawn;      ///< CUSIM_NCCL_HANG
  double nccl_patience_s = -1;  ///< CUSIM_NCCL_PATIENCE_S: an operation of NCCL that takes longer ends the process;
                                ///< negative: none
  bool share_gpus = false;      ///< CUSIM_SHARED_GPU=allow: ranks of a communicator may have the same GPU
  std::string faults;           ///< CUSIM_FAULTS: see faults.hpp
  std::string counts_file;      ///< CUSIM_COUNTS: where the counts are appended at the end of the process
};
const Settings& settings();

/// The rank of this process: CUSIM_RANK, else OMPI_COMM_WORLD_RANK, else PMI_RANK, else 0.
int rank();

/// A number below `bound` (at least 1), from the seed. `purpose` keeps the draws of one kind apart from the others', so
/// that a check that draws more does not change the order of streams. Safe to call from any thread.
std::uint64_t draw(std::string_view purpose, std::uint64_t bound);

/// A number that looks random, always the same for the same numbers. As splitmix64's step.
std::uint64_t mix(std::uint64_t value);
std::uint64_t mix(std::uint64_t first, std::uint64_t second);

// --- Ends ---

/// For a program that did what CUDA forbids, or whose result silicon would leave to chance: prints one line,
/// "cusim: rank R: WHAT", to standard error and ends the process with code 86, at once.
[[noreturn]] void found(const std::string& what);

/// For a call that a fault makes hang: never returns.
[[noreturn]] void hang();

/// For what silicon reports as a late failure: from now on every call returns `error`.
void fail_late(cudaError_t error);

/// The late failure if there is one, else cudaSuccess.
cudaError_t late_failure();

// --- Streams ---

/// One piece of work. Called with streams' locks released, by any thread, by one at a time for a stream. Returns
/// whether it is done; if it is not, it is called again later, so that it must never block. What it needs of the
/// host's memory it must have copied, unless the call's contract says that the host keeps it.
using Work = std::function<bool()>;

/// Enqueues `work` on a stream of the calling thread's device; `what` names it in messages. In a capture it becomes a
/// node, and runs once in each launch of the graph. Returns cudaErrorInvalidResourceHandle for no stream, a late
/// failure, or what a capture forbids.
cudaError_t enqueue(cudaStream_t stream, std::string what, Work work);

/// Whether the stream is being captured. NCCL and cuBLASLt may be.
bool is_capturing(cudaStream_t stream);

/// Lets some pending work of any stream go on, for calls of other libraries that ask or wait. Does not block.
void make_progress();

/// The calling thread's current device.
int current_device();

// --- Memory ---

enum class MemoryKind { unknown, device, pinned };

struct Memory {
  MemoryKind kind = MemoryKind::unknown;  ///< unknown: the host's own
  int device = -1;
  std::byte* begin = nullptr;
  std::size_t bytes = 0;
};

/// The allocation that holds `address` and has not been freed in the host's order: cudaFreeAsync ends it for later
/// calls at once, and for the GPU when the stream gets there.
Memory memory_at(const void* address);

/// What a piece of work of a library does to memory, told while it runs and before it does it. They end the process
/// (`found`) where device memory is outside its allocation, was freed before, or is read before it was written; `who`
/// is the name in the message. The host's memory passes.
void reads(const void* from, std::size_t bytes, std::string_view who);
void writes(const void* to, std::size_t bytes, std::string_view who);

/// As long as it lives, the calling thread may touch GPU memory, which is otherwise guarded against the host. Around
/// the copying and computing of a piece of work.
class [[nodiscard]] GpuAccess {
 public:
  GpuAccess();
  GpuAccess(const GpuAccess&) = delete;
  GpuAccess& operator=(const GpuAccess&) = delete;
  ~GpuAccess();
};

// --- Faults and counts ---

enum class FaultKind { none, error, late, hang, memory };

/// What CUSIM_FAULTS has for this call of the function `call` on this rank; functions of the three libraries ask once,
/// first, except those of CUDA and cuBLASLt that only return a version, an error or a text, and ncclGetErrorString and
/// ncclGetLastError. `error`: the call itself fails. `late`: the call succeeds, and its work fails (CUDA: fail_late;
/// NCCL: the communicator's asynchronous error). `hang`: the call blocks, or its work never becomes done. `memory`: it
/// fails for want of memory.
FaultKind fault_at(std::string_view call);

/// The number that the last fault of this thread carries as code=NUMBER; 0 without one.
int fault_code();

/// Counts one call of the function `call`.
void count(std::string_view call);

}  // namespace cusim
