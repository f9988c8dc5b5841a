// Sums over the ranks in the middle of a backward pass.
#pragma once

#include <cstddef>

#include <ATen/core/Tensor.h>

#include <lockstep/reduce/declared_sums.hpp>

namespace lockstep::libtorch {

/// What the backward pass of `loss_sum` will add up over the ranks, in its order.
SumList sync_sums_of(const at::Tensor& loss_sum);

/// While it lives, backward passes on this thread add up through `sums`.
class OpenSums {
 public:
  explicit OpenSums(DeclaredSums& sums);
  OpenSums(const OpenSums&) = delete;
  OpenSums& operator=(const OpenSums&) = delete;
  ~OpenSums();

  void all_reduce(const at::Tensor& sum);

  /// The number of sums so far.
  std::size_t made() const { return made_; }

 private:
  DeclaredSums& sums_;
  std::size_t made_ = 0;
};

}  // namespace lockstep::libtorch
