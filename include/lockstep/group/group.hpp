// Ranks that agree on each call before they send anything. A program that only wants agreed, reproducible sums over its
// ranks needs nothing else of this library but a Runtime.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include <lockstep/base/dtype.hpp>
#include <lockstep/base/export.hpp>
#include <lockstep/base/here.hpp>
#include <lockstep/tensor/tensor.hpp>

namespace lockstep {

class ReplicaGroup;

/// An ordered set of ranks that work together:
///
///   Group all = runtime.group();
///   std::vector<double> sums = losses_of(all.rank());
///   all.all_reduce(std::span{sums});  // the same bits on every rank, and in every run
///
/// A handle: copies refer to the same group. A rank may be in any number of groups, and groups may overlap. A group
/// must not outlive the runtime, and is used only on the thread that made the runtime.
///
/// Methods are COLL over the ranks of the group, agreed and blocking, unless their comment says otherwise. Agreed: no
/// rank sends anything before all are known to do the same. If ranks call different methods, or the same method from
/// different places or with operands of different shapes or types, every rank gets a MismatchError that says where each
/// rank is; the group can be used again. If a rank has failed, the others get a PeerError. Its rank() is the rank in
/// the group, while its text names the replica of the job.
///
/// All ranks must make, use and free their groups in one common order, from which each rank leaves out the groups that
/// it is not in. Otherwise they wait for each other in a circle, until the stall timeout ends the job with a line that
/// gives the place of each. A rank that does not come ends it in the same way, with a line that names it. So a rank
/// that works in one group must not keep another group waiting for that long. At the end of the job, ranks that have
/// nothing more to do wait as long as others still meet in their groups.
///
/// The watchdogs follow at most 16 groups of a rank at a time, besides that of all ranks. In further ones, a rank is
/// not found to be late, and does not find that others are.
class LOCKSTEP_API Group {
 public:
  /// LOCAL. This rank's place in the group, from 0.
  int rank() const;
  /// LOCAL.
  int size() const;

  /// COLL over `ranks`, not over this group. Makes a group of these ranks of this one, in the order of the list.
  /// InvalidArgument, before any communication, unless each is a rank of this group, each is named once, and this rank
  /// is among them; also if the ranks own GPUs, which only work as one group of all ranks.
  Group subset(std::span<const int> ranks, Here here = Here::current()) const;

  /// Adds up every rank's values, in place. Values on the host are added pairwise in the order of the ranks, so their
  /// bits depend on the number of ranks alone; for those on GPUs, NCCL chooses the order. Integers wrap around.
  /// InvalidArgument, before any communication, for a tensor that is neither in the host's memory nor in that of this
  /// rank's device.
  void all_reduce(const TensorView& values, Here here = Here::current());
  template <detail::Element T, std::size_t N>
  void all_reduce(std::span<T, N> values, Here here = Here::current()) {
    all_reduce(view_of(std::span<T>{values}), here);
  }

  /// Overwrites every rank's values with those of `root`, a rank of this group. InvalidArgument as for all_reduce, and
  /// if there is no such rank.
  void broadcast(const TensorView& values, int root, Here here = Here::current());
  template <detail::Element T, std::size_t N>
  void broadcast(std::span<T, N> values, int root, Here here = Here::current()) {
    broadcast(view_of(std::span<T>{values}), root, here);
  }

  /// Every rank's values, one after the other in the order of the ranks. Ranks may bring different numbers of values.
  template <class T, std::size_t N>
    requires detail::Element<std::remove_const_t<T>>
  std::vector<std::remove_const_t<T>> all_gather(std::span<T, N> values, Here here = Here::current()) {
    using Value = std::remove_const_t<T>;
    const Tensor mine = Tensor::from(std::span<const Value>{values}, {static_cast<std::int64_t>(values.size())});
    return gather(mine, here).template to_vector<Value>(here);
  }

 private:
  friend class Strategy;
  explicit Group(std::shared_ptr<ReplicaGroup> group) : group_{std::move(group)} {}

  template <class T>
  static TensorView view_of(std::span<T> values) {
    return {
        reinterpret_cast<std::byte*>(values.data()), {static_cast<std::int64_t>(values.size())}, detail::dtype_of<T>};
  }
  Tensor gather(Tensor values, const Here& here);

  std::shared_ptr<ReplicaGroup> group_;
};

}  // namespace lockstep
