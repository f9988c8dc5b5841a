// Sums over the ranks in the middle of a backward pass.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/ivalue.h>

#include <lockstep/core/base/here.hpp>
#include <lockstep/sync/strategy/variable_store.hpp>

#include "sync/reduce/declared_sums.hpp"
#include "torch/autograd_graph.hpp"
#include "torch/torch_device.hpp"

namespace lockstep::libtorch {

struct SumPoint;

/// Makes such a sum.
class SumMaker {
 public:
  virtual ~SumMaker() = default;

  /// `own` plus what the others have at this point, in memory that may be that of `own`.
  virtual at::Tensor sum_up(const SumPoint& point, const at::Tensor& own) = 0;
};

/// What a layer whose backward pass adds up over the ranks leaves in the graph.
struct SumPoint : ::torch::CustomClassHolder {
  SumPoint(std::int64_t elements, bool rows) : count{elements}, has_rows{rows} {}

  std::string layer = {};    ///< for messages
  std::uint64_t pass = 0;    ///< of all ranks together, through that layer
  std::int64_t count;        ///< of the sum's elements
  bool has_rows;             ///< this rank's numbers are a part of others' results
  SumMaker* open = nullptr;  ///< while the sum can be made
};

using SumPoints = std::vector<c10::intrusive_ptr<SumPoint>>;

/// What the ranks compare beside the sizes of sums: " through SyncBatchNorm 'norm' (digest …)". Empty without sums.
std::string text_of(const SumPoints& points);

/// The sums that the backward pass of a loss makes over the ranks.
class SyncSums final : public SumMaker {
 public:
  explicit SyncSums(const at::Tensor& loss);
  SyncSums(const SyncSums&) = delete;
  SyncSums& operator=(const SyncSums&) = delete;
  ~SyncSums() override {
    for (const auto& point : points_) point->open = nullptr;
  }

  /// In the order of the backward pass.
  const SumList& list() const { return list_; }

  std::string text() const { return text_of(points_); }

  /// What the losses of other ranks depend on, too.
  const GraphNodes& shared() const { return shared_; }

  /// From here on the backward pass can make them, on any thread. All arguments must outlive this object.
  void open(DeclaredSums& sums, TorchDevice& device, Stream& stream);

  /// In place. Contributes zeros to those before it that the backward pass has passed by.
  at::Tensor sum_up(const SumPoint& point, const at::Tensor& own) override;

  /// COLL. Contributes zeros to those that the backward pass did not come to.
  void make_the_rest() { make_zeros(list_.counts.size()); }

 private:
  void make_zeros(std::size_t end);

  SumList list_{.dtype = DType::f64};
  SumPoints points_;
  GraphNodes shared_;
  DeclaredSums* sums_ = nullptr;
  TorchDevice* device_ = nullptr;
  Stream* stream_ = nullptr;
  std::size_t made_ = 0;
};

/// COLL, one agreement, in the replica context that is current. Runs a backward pass whose gradients stay on this rank,
/// and makes its sums; `text` says what it is. If a rank fails in it, the others throw PeerError from here.
/// ContextError outside Strategy::run of the strategy that has `store`.
void run_pass_with_sums(SyncSums& sums, std::string_view text, VariableStore& store, TorchDevice& device,
                        const Here& here, const std::function<void()>& pass);

}  // namespace lockstep::libtorch
