// Batches that a thread draws ahead of their steps, for iterators.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <lockstep/core/base/export.hpp>
#include <lockstep/sync/strategy/replica_context.hpp>
#include <lockstep/tf/feed/batch_tensors.hpp>

namespace lockstep::detail {

/// InvalidArgument unless it is 0 or more.
LOCKSTEP_API void require_prefetch(int batches);

/// What a source gave in one call, without its type.
struct DrawnBatch {
  std::shared_ptr<void> batch;  ///< null at the end
  std::string what;             ///< as DistributedIterator::Draw describes it
  /// Calls a function with each of the batch's tensors.
  std::function<void(const std::function<void(Tensor&)>& visit)> visit_tensors = [](const auto&) {};
};

/// Draws batches ahead and, if this rank has a GPU, copies their tensors there: the thread copies them into pinned
/// memory, and the caller of `next`, which alone uses the rank's stream, copies them from there to the GPU.
class LOCKSTEP_API DrawAhead {
 public:
  DrawAhead(const StrategyAddress& address, int batches, std::function<DrawnBatch()> draw);
  ~DrawAhead();

  /// Blocks until the next batch is there. Its tensors are valid for work enqueued on the rank's stream from now on.
  DrawnBatch next();

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

/// `draw`, ahead of its caller.
template <class Batch>
std::function<std::optional<Batch>(std::string&)> draw_ahead(const StrategyAddress& address, int batches,
                                                             std::function<std::optional<Batch>(std::string&)> draw) {
  const auto ahead = std::make_shared<DrawAhead>(address, batches, [draw = std::move(draw)] {
    DrawnBatch drawn;
    if (std::optional<Batch> own = draw(drawn.what)) {
      const auto batch = std::make_shared<Batch>(*std::move(own));
      drawn.visit_tensors = [batch](const auto& visit) { visit_tensors(*batch, visit); };
      drawn.batch = batch;
    }
    return drawn;
  });
  return [ahead](std::string& what) -> std::optional<Batch> {
    DrawnBatch drawn = ahead->next();
    what = std::move(drawn.what);
    if (!drawn.batch) return std::nullopt;
    return std::move(*static_cast<Batch*>(drawn.batch.get()));
  };
}

}  // namespace lockstep::detail
