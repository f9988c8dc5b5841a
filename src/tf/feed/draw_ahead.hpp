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

/// What gives the batches of `draw`, of the type, which a thread draws ahead. If this rank has a GPU, the thread copies
/// their tensors into pinned memory, and the caller, which alone uses the rank's stream, copies them from there to the
/// GPU: they are valid for work enqueued on the stream from then on. Blocks until the next batch is there.
Draw draw_ahead(const StrategyAddress& address, int batches, const Description& type, Draw draw);

}  // namespace lockstep::detail
