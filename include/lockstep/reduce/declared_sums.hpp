// Sums over the ranks in the middle of a computation that may fail.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <lockstep/reduce/cross_device_ops.hpp>

namespace lockstep {

/// Tensors to be summed over the ranks, one after the other.
struct SumList {
  DType dtype = DType::f32;
  std::vector<std::int64_t> counts;  ///< number of elements of each
};

/// "6 sums of 384 f32 (digest 0123456789abcdef)": short, and different for different lists.
std::string describe(const SumList& list);

/// The sums of a list that the ranks have agreed on in advance. A rank that fails between two of them therefore knows
/// what the others will wait for, and contributes to it.
class DeclaredSums {
 public:
  /// For tensors in memory of the stream's device. All arguments must outlive this object.
  DeclaredSums(CrossDeviceOps& reductions, const SumList& list, Stream& stream)
      : reductions_{reductions}, list_{list}, stream_{stream} {}

  /// COLL, as CrossDeviceOps::all_reduce. Makes the next sum of the list, in place. InvalidArgument, before anything is
  /// sent, for a tensor of another type or number of elements, or if no sum is left.
  void all_reduce(const TensorView& tensor);

  /// LOCAL. InvalidArgument unless every sum of the list has been made.
  void require_all_made() const;

  /// COLL. Contributes zeros to the sums that have not been made.
  void make_the_rest();

 private:
  CrossDeviceOps& reductions_;
  const SumList& list_;
  Stream& stream_;
  std::size_t made_ = 0;
};

}  // namespace lockstep
