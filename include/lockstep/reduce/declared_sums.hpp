// Sums over the ranks in the middle of a computation that may fail.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <lockstep/reduce/cross_device_ops.hpp>

namespace lockstep {

/// Tensors that are to be added up over the ranks, one after the other.
struct SumList {
  DType dtype = DType::f32;
  std::vector<std::int64_t> counts;  ///< the elements of each
};

/// "6 sums of 384 f32 (digest 0123456789abcdef)": short, and another text for another list.
std::string describe(const SumList& list);

/// The sums of a list that the ranks have agreed on beforehand. So a rank that fails between two of them knows what the
/// others are about to wait for, and brings it.
class DeclaredSums {
 public:
  /// Of tensors in memory of the stream's device. Everything must outlive it.
  DeclaredSums(CrossDeviceOps& reductions, const SumList& list, Stream& stream)
      : reductions_{reductions}, list_{list}, stream_{stream} {}

  /// COLL, as CrossDeviceOps::all_reduce: the next sum of the list, in place. InvalidArgument, before anything is sent,
  /// for a tensor of another type or number of elements, or where there is no next one.
  void all_reduce(const TensorView& tensor);

  /// LOCAL. InvalidArgument unless all sums of the list have been made.
  void require_all_made() const;

  /// COLL. Brings zeros for the sums that have not been made.
  void make_the_rest();

 private:
  CrossDeviceOps& reductions_;
  const SumList& list_;
  Stream& stream_;
  std::size_t made_ = 0;
};

}  // namespace lockstep
