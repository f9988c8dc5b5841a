// Batches that a thread draws ahead of their steps, for iterators.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include <lockstep/core/values/leaves.hpp>
#include <lockstep/sync/strategy/replica_context.hpp>

namespace lockstep::detail {

/// Draws this rank's next batch; null at the end of its data. Describes in `what`, for the error message, whatever must
/// be the same on every rank.
using Draw = std::function<std::shared_ptr<void>(std::string& what)>;

/// Draws batches of the type ahead and, if this rank has a GPU, copies their tensors there: the thread copies them into
/// pinned memory, and the caller of `next`, which alone uses the rank's stream, copies them from there to the GPU.
class DrawAhead {
 public:
  DrawAhead(const StrategyAddress& address, int batches, const Description& type, Draw draw);
  ~DrawAhead();

  /// Blocks until the next batch is there. Its tensors are valid for work enqueued on the rank's stream from now on.
  std::shared_ptr<void> next(std::string& what);

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace lockstep::detail
