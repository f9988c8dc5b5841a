// Reductions of a communicator, by what they are for in tests.
#pragma once

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "core/comm/communicator.hpp"
#include "sync/reduce/reductions.hpp"

namespace lockstep::test {

/// If `nodes` is empty, all ranks are on one node.
inline std::unique_ptr<Reductions> reductions_of(Communicator& communicator, const ReductionOptions& options,
                                                 std::vector<int> nodes = {}) {
  if (nodes.empty()) nodes.resize(static_cast<std::size_t>(communicator.size()));
  return std::make_unique<Reductions>(Reductions::Planes{communicator}, options, nodes);
}

inline std::unique_ptr<Reductions> in_fixed_order(Communicator& communicator, const Packing& packing = {}) {
  return reductions_of(communicator, {.kind = ReductionOptions::Kind::fixed_order, .packing = packing});
}

inline std::unique_ptr<Reductions> in_backend_order(Communicator& communicator, const Packing& packing = {}) {
  return reductions_of(communicator, {.kind = ReductionOptions::Kind::backend_order, .packing = packing});
}

inline std::unique_ptr<Reductions> on_one_rank(Communicator& communicator,
                                               ReductionOptions::Accumulate accumulate = {}) {
  return reductions_of(communicator,
                       {.kind = ReductionOptions::Kind::to_one_rank, .accumulate = std::move(accumulate)});
}

inline std::unique_ptr<Reductions> over_nodes(Communicator& communicator, const std::vector<int>& nodes,
                                              std::optional<DType> compression = {}) {
  return reductions_of(communicator,
                       {.kind = ReductionOptions::Kind::hierarchical, .gradient_compression = compression}, nodes);
}

}  // namespace lockstep::test
