// Ranks that agree on what they do together, and then do it. Whoever wants agreed, reproducible sums over ranks needs
// nothing else of this library but a Runtime.
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

/// An ordered set of ranks:
///
///   Group all = runtime.group();
///   std::vector<double> sums = losses_of(all.rank());
///   all.all_reduce(std::span{sums});  // the same bits on every rank, and in every run
///
/// A handle: copies mean the same group. A rank may be in any number of groups, which overlap, and which are made, used
/// and freed in any order that the ranks of each share. They must not outlive the runtime, and are used on the thread
/// that made it.
///
/// Methods are COLL over the ranks of the group, agreed and blocking, unless they are marked. Agreed: no rank sends
/// anything before all are known to do the same. Ranks that call different methods, at different places or with
/// operands of other shapes and types, get a MismatchError that says who is where, and the group can be used again;
/// PeerError where a rank has failed. Its rank() counts as the group does, and the text as the job does.
///
/// A rank that does not come ends the job within the stall timeout, with a line that names it, and so do ranks that use
/// two groups in different orders. So a rank that works in one group must not let those of another wait for longer. At
/// the end of the job, ranks that have nothing more to do wait for those that still work. If a rank is in more than 16
/// groups at a time, it is not found to be late in the others.
class LOCKSTEP_API Group {
 public:
  /// LOCAL. This rank's place in the group, from 0.
  int rank() const;
  /// LOCAL.
  int size() const;

  /// COLL over `ranks`, not over this group. A group of these ranks of this one, in that order. This rank is one of
  /// them. InvalidArgument, before any communication, for ranks that are none, or that are named twice; and on GPUs,
  /// where all ranks are one group.
  Group subset(std::span<const int> ranks, Here here = Here::current()) const;

  /// Adds up every rank's values, in place. The order is that of the ranks, pairwise: it depends on their number alone,
  /// and so do the bits. Integers wrap around. InvalidArgument, before any communication, for a tensor that is neither
  /// in the host's memory nor in that of this rank's device.
  void all_reduce(const TensorView& values, Here here = Here::current());
  template <detail::Element T, std::size_t N>
  void all_reduce(std::span<T, N> values, Here here = Here::current()) {
    all_reduce(view_of(std::span<T>{values}), here);
  }

  /// The values of `root`, a rank of the group, overwrite everyone's.
  void broadcast(const TensorView& values, int root, Here here = Here::current());
  template <detail::Element T, std::size_t N>
  void broadcast(std::span<T, N> values, int root, Here here = Here::current()) {
    broadcast(view_of(std::span<T>{values}), root, here);
  }

  /// Every rank's values, one after the other in the order of ranks. Ranks may bring different numbers of them.
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
