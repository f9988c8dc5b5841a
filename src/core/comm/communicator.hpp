// The data plane: collectives on tensors among the ranks of a group. A communicator moves bytes. The reduce layer
// decides what is combined with what, and in which order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include <lockstep/core/tensor/tensor.hpp>

#include "core/base/parts.hpp"
#include "core/device/device.hpp"

namespace lockstep {

/// How a flat tensor is cut into one slice per rank: slice r is [bounds[r], bounds[r + 1]). There are size() + 1
/// numbers, ascending from 0 to the tensor's element count; equal neighbours make an empty slice. The same on every
/// rank. Needed only until the call returns.
using SliceBounds = std::span<const std::int64_t>;

/// A collective that was started. Its tensors must stay alive and untouched until `wait` returns. On a GPU, the tensors
/// are then free for work enqueued on the communicator's stream, not yet for the host. `wait` must not be called after
/// the communicator is destroyed.
class [[nodiscard]] Work {
 public:
  /// Bytes that a rank sends to others.
  struct Traffic {
    std::int64_t begun = 0;  ///< given to the network
    std::int64_t all = 0;    ///< these, and those that it will still be given

    Traffic& operator+=(const Traffic& other) {
      begun += other.begun;
      all += other.all;
      return *this;
    }
  };

  /// A backend's record of a collective in flight.
  class Pending {
   public:
    virtual ~Pending() = default;
    virtual void wait() = 0;
    /// Work::advance and Work::traffic, if it does anything before `wait`.
    virtual bool advance() { return false; }
    virtual Traffic traffic() const { return {}; }
  };

  explicit Work(std::unique_ptr<Pending> pending) : pending_{std::move(pending)} {}

  /// A collective that was done when its call returned.
  static Work done() { return Work{nullptr}; }

  /// A collective that is made in `wait`, by calling `collective`.
  static Work later(std::function<void()> collective);

  /// Orders everything enqueued on the communicator's stream from here on after the collective. On a stream of the
  /// host, it blocks until the collective is done. CommError if the collective is known to have failed. Call at most
  /// once.
  void wait() {
    if (const auto pending = std::move(pending_)) pending->wait();
  }

  /// LOCAL, never blocks. Moves the collective on as far as the other ranks have come: adds up what has arrived, and
  /// sends it on. Returns whether `wait` would return at once. A collective on the host that nobody advances may begin
  /// only in `wait`. CommError as `wait`.
  bool advance() { return !pending_ || pending_->advance(); }

  /// LOCAL. What this rank sends to ranks of other nodes, if the collective travels while the ranks compute; otherwise
  /// nothing. Call before `wait`.
  Traffic traffic() const { return pending_ ? pending_->traffic() : Traffic{}; }

 private:
  std::unique_ptr<Pending> pending_;
};

class Messenger;
class NodeMemory;

/// What a rank gets of memory that the ranks of its node share.
struct SharedAllocation {
  Buffer memory;        ///< empty if any rank of the node failed, or if there is no such memory
  std::string failure;  ///< why this rank failed; empty if it did not
};

/// A group of ranks that move tensors in memory of one kind of device. Every method that returns Work is collective:
/// each rank of the group calls it, in the same order, with tensors of the same shape and type. No method checks that
/// the ranks agree; the control plane has done so before. A collective starts after what was enqueued on `stream`
/// before it. On a GPU's stream, the host does not wait for it to finish; on the host's, it may. Only `abort` is
/// thread-safe.
class LOCKSTEP_PARTS_API Communicator {
 public:
  virtual ~Communicator() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;

  /// "local", "mpi", "nccl" or "sim".
  virtual std::string_view backend() const = 0;

  /// The stream that orders the collectives. They move memory of its device.
  virtual Stream& stream() = 0;

  /// Uninitialised memory that this backend moves best. Otherwise as inside(stream).allocate.
  virtual Buffer allocate(std::size_t bytes) = 0;

  /// LOCAL. How the ranks of this group, all of one node, reach each other's tensors in host memory; null on all of
  /// them if they do not. For the reductions.
  virtual NodeMemory* node_memory() { return nullptr; }

  /// LOCAL. How the ranks of this group send each other tensors in host memory while they compute; null on all of them
  /// if they cannot. For the reductions.
  virtual Messenger* messenger() { return nullptr; }

  /// Overwrites every rank's `tensor` with that of `root`.
  virtual Work broadcast(const TensorView& tensor, int root) = 0;

  /// Rank r gets slice r of every rank's `mine`. `received` holds size() pieces of that slice's length, in rank order.
  virtual Work all_to_all(const TensorView& mine, SliceBounds bounds, const TensorView& received) = 0;

  /// In place: rank r contributes slice r of `whole` and gets all others.
  virtual Work all_gather(const TensorView& whole, SliceBounds bounds) = 0;

  /// In place: rank r contributes slice r of `whole`, and only `root` gets the others. On other ranks `whole` is
  /// unchanged.
  virtual Work gather(const TensorView& whole, SliceBounds bounds, int root) = 0;

  /// In place: adds up every rank's tensor, element by element, in an order that the backend chooses. The bits of a
  /// floating-point sum may therefore depend on the number of ranks. InvalidArgument for f16 and bf16 if the backend
  /// cannot add them up.
  virtual Work all_reduce(const TensorView& tensor) = 0;

  /// As all_reduce, but only `root` gets the sum. On other ranks the contents of `tensor` are unspecified afterwards.
  virtual Work reduce(const TensorView& tensor, int root) = 0;

  /// COLL over `members`, which are ranks of this communicator, and which this rank is one of; blocking. Makes their
  /// communicator, in that order. `key` is the same on all of them, and tells what they make from what others of these
  /// ranks make. It may outlive this communicator. InvalidArgument if the backend cannot do that.
  virtual std::unique_ptr<Communicator> subset(std::span<const int> members, std::uint64_t key);

  /// LOCAL, from any thread. Gives up collectives in flight that may never end because a rank of the group is gone. For
  /// a process that is about to end: only the destructor may be called afterwards.
  virtual void abort() noexcept = 0;
};

}  // namespace lockstep
