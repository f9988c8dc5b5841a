// Sums over the ranks in the middle of a backward pass.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <ATen/core/ivalue.h>

#include <lockstep/reduce/declared_sums.hpp>

#include "torch/torch_device.hpp"

namespace lockstep::libtorch {

class SyncSums;

/// What a layer whose backward pass adds up over the ranks leaves in the graph.
struct SumPoint : ::torch::CustomClassHolder {
  explicit SumPoint(std::int64_t elements) : count{elements} {}

  std::int64_t count;        ///< of the sum's elements
  SyncSums* open = nullptr;  ///< while the sum can be made
};

/// The sums that the backward pass of a loss makes over the ranks.
class SyncSums {
 public:
  explicit SyncSums(const at::Tensor& loss_sum);
  SyncSums(const SyncSums&) = delete;
  SyncSums& operator=(const SyncSums&) = delete;
  ~SyncSums();

  /// In the order of the backward pass.
  const SumList& list() const { return list_; }

  /// From here on the backward pass can make them, on whichever thread autograd computes. All arguments must outlive
  /// this object.
  void open(DeclaredSums& sums, TorchDevice& device, Stream& stream);

  /// In place.
  void all_reduce(const at::Tensor& sum);

  /// COLL. Contributes zeros to those that the backward pass did not come to.
  void make_the_rest();

 private:
  SumList list_{.dtype = DType::f64};
  std::vector<c10::intrusive_ptr<SumPoint>> points_;
  DeclaredSums* sums_ = nullptr;
  TorchDevice* device_ = nullptr;
  Stream* stream_ = nullptr;
  std::size_t made_ = 0;
};

}  // namespace lockstep::libtorch
