// The data plane: collectives on tensors among the ranks of a group. What is combined with what, and in which order, is
// the reduce layer's; a communicator moves bytes.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include <lockstep/tensor/tensor.hpp>

namespace lockstep {

enum class ReduceOp : std::uint8_t { sum, mean };

/// "sum", "mean".
std::string_view name_of(ReduceOp op);

/// A collective that was started. Its tensors must stay alive, and untouched, until `wait` returns; on a GPU that goes
/// for the work enqueued on the communicator's stream, not for the host. `wait` must not be called once the
/// communicator is gone.
class [[nodiscard]] Work {
 public:
  /// What a backend keeps of a collective under way.
  class Pending {
   public:
    virtual ~Pending() = default;
    virtual void wait() = 0;
  };

  explicit Work(std::unique_ptr<Pending> pending) : pending_{std::move(pending)} {}

  /// The work of a backend that was done when the call returned.
  static Work done() { return Work{nullptr}; }

  /// Whatever is enqueued on the communicator's stream from here on comes after the collective; on a stream of the host
  /// that is to say that the host waits for it. CommError if it is known to have failed. At most once.
  void wait() {
    if (const auto pending = std::move(pending_)) pending->wait();
  }

 private:
  std::unique_ptr<Pending> pending_;
};

/// How a flat tensor is cut into one slice a rank: slice r is [bounds[r], bounds[r + 1]). size() + 1 numbers, the first
/// 0, the last the tensor's element count, none smaller than the one before. The same on every rank.
using SliceBounds = std::span<const std::int64_t>;

/// Slices of about equal length, each a multiple of `granule` elements but the last.
std::vector<std::int64_t> even_slices(std::int64_t count, int slices, std::int64_t granule = 64);

/// A group of ranks that move tensors in memory of one kind of device. Every method that returns Work is collective:
/// each rank of the group calls it, in the same order, with tensors of the same shape and type; so is `split`. No
/// method checks that the ranks agree: the control plane has done so before. A collective starts after what was
/// enqueued on `stream` before it, and does not block the host where that is a GPU's. Not thread-safe but for `abort`.
class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;

  /// "local", "mpi", "nccl", "sim".
  virtual std::string_view backend() const = 0;

  /// The stream whose work the collectives are ordered with; its device's memory is what they move.
  virtual Stream& stream() = 0;

  /// Memory that this backend moves best. Uninitialised.
  virtual Buffer allocate(std::size_t bytes) = 0;

  /// `tensor` of `root` overwrites everyone's.
  virtual Work broadcast(const TensorView& tensor, int root) = 0;

  /// Rank r gets slice r of everyone's `mine`: `received` holds size() pieces of that slice's length, in rank order.
  virtual Work all_to_all(const TensorView& mine, SliceBounds bounds, const TensorView& received) = 0;

  /// In place: rank r brings slice r of `whole`, and gets all others.
  virtual Work all_gather(const TensorView& whole, SliceBounds bounds) = 0;

  /// In place: rank r brings slice r of `whole`; only `root` gets the others. Elsewhere `whole` keeps what it held.
  virtual Work gather(const TensorView& whole, SliceBounds bounds, int root) = 0;

  /// In place: everyone's tensors added up, element by element, in an order of the backend's choosing. So the bits of a
  /// floating-point sum may depend on the number of ranks. InvalidArgument for f16 and bf16 where the backend has no
  /// sum of them.
  virtual Work all_reduce(const TensorView& tensor) = 0;

  /// The same for `root` alone; elsewhere `tensor` holds anything afterwards.
  virtual Work reduce(const TensorView& tensor, int root) = 0;

  /// The ranks that name the same `group`, a number from 0, as a communicator of their own, in the order that they have
  /// here; null for a rank that names none. This communicator must outlive it. InvalidArgument where the backend has no
  /// groups of its ranks.
  virtual std::unique_ptr<Communicator> split(std::optional<int> group);

  /// LOCAL, from any thread: gives up collectives under way that may never end, because a rank of the group is gone.
  /// For a process that is about to end; nothing but the destructor may be called afterwards.
  virtual void abort() noexcept = 0;
};

/// A group of one, on the memory of the stream's device.
std::unique_ptr<Communicator> make_local_communicator(Stream& stream = host_stream());

/// All ranks of the job, over MPI on host memory. Collective over the job. MPI must run for as long as it lives.
std::unique_ptr<Communicator> make_mpi_communicator();

struct NcclOptions {
  /// For the start: a rank that is not there by then is an error on all.
  std::chrono::duration<double> init_timeout{60};
  /// Called at most once, from a thread of the communicator's own, with a CommError: NCCL reports a failure of a
  /// collective that was started, and no method has thrown it. It may call `abort` and end the process; it must not
  /// throw, nor destroy the communicator. Empty: nobody looks, and the failure waits for the next call.
  std::function<void(std::exception_ptr)> on_failure;
};

/// The ranks of `host`, over NCCL on the memory of the GPU that `device` is; `compute` is one of its streams. The
/// collectives run on another, so that the compute stream goes on until a Work is waited for.
///
/// Collective over `host`, which carries what must be exchanged to start and is not used afterwards. Blocks until a
/// first collective has come through. Ends within the time-out, or a few seconds after it: CommError on every rank if
/// one failed, naming the lowest that did; a rank that only waited for another in vain is named where none failed
/// otherwise. DeviceError in a build without NCCL.
///
/// A method of the communicator returns when its collective is enqueued, not when it is done; the first between two
/// ranks waits for the other's call, to connect them. The destructor is collective, unless `abort` was called: it waits
/// for the other ranks to come to theirs, but no longer than some seconds. `device` and `compute` must outlive it.
std::unique_ptr<Communicator> make_nccl_communicator(Communicator& host, Device& device, Stream& compute,
                                                     NcclOptions options = {});

/// For tests, where ranks outnumber GPUs: lets several ranks of a node share one, each posing as a host of its own, so
/// that NCCL's traffic goes through sockets of this machine. Sets variables of this process's environment, over what
/// the user has set, and must come before anything else of NCCL and before there are other threads. Without effect in a
/// build without NCCL.
void allow_shared_gpu();

}  // namespace lockstep
