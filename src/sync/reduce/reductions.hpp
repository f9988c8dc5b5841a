// What the ranks of a group do together with tensors: which values are combined, in which order, and who gets the
// result.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <lockstep/core/tensor/tensor.hpp>
#include <lockstep/core/values/values.hpp>
#include <lockstep/sync/reduce/reduction_options.hpp>

#include "core/base/parts.hpp"
#include "core/comm/communicator.hpp"
#include "core/order/shares.hpp"

namespace lockstep {

using Packing = ReductionOptions::Packing;
class Job;
struct Sliced;
class Subtrees;

namespace detail {
class ReductionPlane;
struct Request;
struct Way;
}  // namespace detail

/// LOCAL, before any communication. InvalidArgument if `op` is not a ReduceOp or is not defined for `dtype`: the mean
/// of integers is not an integer. Sums of integers wrap around.
LOCKSTEP_PARTS_API void require_reducible(ReduceOp op, DType dtype);

/// LOCAL. InvalidArgument unless `values` have an exact sum: f32 or f64, on the host.
void require_exact(const TensorView& values);

/// LOCAL. InvalidArgument unless the parts of `slices` fit together, the indices are rows of the dense shape (checked
/// only on the host), and `op` is defined for the values.
void require_reducible(ReduceOp op, const IndexedSlices& slices);

/// Each method makes a request (request.hpp), whose messages travel by the paths that paths.hpp chooses. Unless it says
/// otherwise, it is COLL: each rank passes tensors of the same number, shapes, types and kinds of device, in the same
/// order; the caller has agreed on them. For host tensors a method blocks until the result is there; for GPU tensors,
/// work enqueued on the communicator's stream afterwards sees the result. Host tensors are complete before those of
/// GPUs begin: MPI and NCCL never move tensors at the same time. Tensors of one type travel as one message, or as the
/// packing says. Tensors that are adjacent in memory are sent in place, others through a packed copy.
class LOCKSTEP_PARTS_API Reductions final {
 public:
  /// The same ranks in the same order. Both must outlive the reductions.
  struct Planes {
    Communicator& host;
    Communicator* device = nullptr;  ///< for tensors on this process's GPU, if it has one
  };

  /// Called instead of each part of a collective: all of it; or starting it, moving it on, and waiting for it. Must
  /// call `part` once. `device` says where the part may enqueue work. If empty, the parts are called.
  using Seam = std::function<void(DeviceKind device, const std::function<void()>& part)>;

  /// COLL. `node_of_rank` has the same number for ranks of one node. `number` is the same on every rank, and another
  /// for each object on the same planes. A part that fails ends `job`, if that is given. InvalidArgument for invalid
  /// options, and if hierarchical sums get no node for each rank, or a backend that cannot do what they need;
  /// ConfigError for compressed gradients on GPUs.
  Reductions(const Planes& planes, const ReductionOptions& options, std::span<const int> node_of_rank, Seam seam = {},
             std::uint64_t number = 0, Job* job = nullptr);
  Reductions(const Reductions&) = delete;
  ~Reductions();

  /// What was chosen for variables, which are on the GPU if there is one, and, where sizes differ, for large tensors.
  struct Choice {
    /// "fixed-order sum", "sum in the backend's order", "hierarchical sum", "reduction to one rank", "reduction to one
    /// rank by a function".
    std::string name;
    Packing packing;  ///< how tensors become messages
    /// How many bytes of neighbouring gradients are enough for a message (plan_buckets): few where messages travel
    /// while more gradients are computed.
    std::int64_t enough_bytes;
    /// What gradients are rounded to between nodes. Empty if they are not, as where all ranks are on one node.
    std::optional<DType> gradient_compression;
    std::vector<int> slice_owners;  ///< the ranks of the slices that a piece of a message is cut into, in order
    bool takes_subtrees;  ///< whether OfSubtrees may be used: on the host, if all sums have the bits of the tree
  };

  /// As long as it lives, sums of dense tensors that begin are of ranks that bring the sums of their shares of so many
  /// shards each (Shares), and continue the tree over the shards: they have the same bits on any number of ranks. The
  /// same on every rank. 0: each rank brings a part of its own.
  class [[nodiscard]] OfShards {
   public:
    OfShards(Reductions& reductions, int shards)
        : reductions_{reductions}, before_{std::exchange(reductions.shards_, shards)} {}
    OfShards(const OfShards&) = delete;
    OfShards& operator=(const OfShards&) = delete;
    ~OfShards() { reductions_.shards_ = before_; }

   private:
    Reductions& reductions_;
    int before_;
  };

  /// As long as it lives, `start` and `start_scatter` of messages in the memory of `subtrees`, which must outlive their
  /// Works, add up the parts of all subtrees. Only if choice() says that they can; the same on every rank. Does nothing
  /// for null: each rank brings one part.
  class [[nodiscard]] OfSubtrees {
   public:
    OfSubtrees(Reductions& reductions, const Subtrees* subtrees) : reductions_{reductions} {
      reductions.subtrees_ = subtrees;
    }
    OfSubtrees(const OfSubtrees&) = delete;
    OfSubtrees& operator=(const OfSubtrees&) = delete;
    ~OfSubtrees() { reductions_.subtrees_ = nullptr; }

   private:
    Reductions& reductions_;
  };

  // LOCAL.

  const std::string& name() const { return choice_.name; }
  const Packing& packing() const { return choice_.packing; }
  std::int64_t enough_bytes() const { return choice_.enough_bytes; }
  std::optional<DType> gradient_compression() const { return choice_.gradient_compression; }
  const std::vector<int>& slice_owners() const { return choice_.slice_owners; }
  /// How ranks best share so many shards. Each has one subtree if these reductions take no OfSubtrees, or if some rank
  /// has threads, as these share a power of two of shards.
  const Shares& shares(int shards, int ranks, bool has_threads);
  /// Null unless there is an OfSubtrees.
  const Subtrees* subtrees() const { return subtrees_; }

  /// Of a tensor of so many bytes of the type, which way an all-reduce goes.
  detail::Way way_of_sum(std::int64_t bytes, DType dtype) const;

  /// Of a sum over such shares: how many subtrees the rank, or the node, has that sends most.
  int subtrees_sent(const Shares& shares) const;

  /// COLL over the ranks of a node. Host memory in which they reduce in place: tensors at the same place of it on every
  /// rank are summed where they are. Zeroed, and it may outlive this object. Empty where there is no such memory.
  SharedAllocation allocate_shared(std::size_t bytes);

  /// In place, on every rank.
  void all_reduce(ReduceOp op, std::span<const TensorView> tensors);

  /// Starts the sum of `message` over all ranks, in place and as one message whatever the packing. Returns at once: a
  /// GPU's backend works while the caller continues, and so do sums between nodes; others of the host are made when
  /// they are waited for. `message` stays untouched until then. Wait for all of them, in the order in which they were
  /// started, before any other reduction.
  Work start(const TensorView& message);

  /// The same for `all_reduce(op, tensors)`, with its messages and its bits. The memory of `tensors` stays untouched
  /// until the wait; the span may end with the call.
  Work start_all_reduce(ReduceOp op, std::span<const TensorView> tensors);

  // A sum in two halves, between which each rank works on its own slices of a message (slice_map.hpp).

  /// As `start`, but the sum arrives only in this rank's slices of `message.memory`, with the bits that `start` gives.
  /// The rest of the memory is unspecified afterwards, and other ranks may read all of it until the next fence: another
  /// reduction or `gather_slices`.
  Work start_scatter(const Sliced& message);

  /// The owners' slices overwrite everyone's. `through` is unspecified afterwards.
  void gather_slices(std::span<const Sliced> messages);

  /// The sum of few numbers. In an OfSubtrees, each rank has them for each of its subtrees: for the last in `sum`, and
  /// for those before it in `others`, in their order. The result goes to `sum`. Otherwise all_reduce of `sum`.
  void sum_up(const TensorView& sum, std::span<const TensorView> others);

  /// In place on `root`. On other ranks the tensors' contents are unspecified afterwards.
  void reduce_to_one(ReduceOp op, std::span<const TensorView> tensors, int root);

  /// `root`'s tensors overwrite everyone's.
  void broadcast(std::span<const TensorView> tensors, int root);

  // The same for slices, whose number of rows may differ by rank. A sum is the concatenation of all ranks' rows in rank
  // order, with duplicates kept; a mean divides their values by the number of ranks. The result replaces each of
  // `slices`; on a rank that gets none, their contents are unspecified afterwards. Blocks the host while the
  // numbers of rows are exchanged.
  void all_reduce(ReduceOp op, std::span<IndexedSlices> slices);
  void reduce_to_one(ReduceOp op, std::span<IndexedSlices> slices, int root);
  void broadcast(std::span<IndexedSlices> slices, int root);

  /// Replaces each tensor by all ranks' rows of it, concatenated in rank order. The first extents may differ by rank
  /// and may be 0. Blocks the host while they are exchanged.
  void all_gather(std::span<Tensor> tensors);

 private:
  class Started;

  detail::ReductionPlane& plane_of(DeviceKind device) const {
    return device == DeviceKind::cuda && device_ ? *device_ : *host_;
  }
  detail::ReductionPlane& of_variables() const { return device_ ? *device_ : *host_; }
  template <class Part>
  void through_seam(DeviceKind device, Part&& part);
  template <class Part>
  void wait_through_seam(DeviceKind device, Part&& part);
  template <class Operand>
  void run(detail::Request request, std::span<Operand> detail::Request::*operands);
  Work start_guarded(DeviceKind device, std::function<Work()> begin);

  std::unique_ptr<detail::ReductionPlane> host_, device_;
  Choice choice_;
  Seam seam_;
  Job* job_;
  std::map<std::array<int, 3>, Shares> found_;  ///< by the arguments of `shares`: they take long to find
  int shards_ = 0;                              ///< OfShards
  const Subtrees* subtrees_ = nullptr;          ///< OfSubtrees
  bool begins_at_wait_;                         ///< so that what the program has put around a collective has all of it
};

}  // namespace lockstep
