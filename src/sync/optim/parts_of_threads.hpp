// How the threads of a rank share an optimizer's passes over flat memory.
#pragma once

#include <cstddef>
#include <optional>
#include <span>

#include <lockstep/sync/strategy/variable_store.hpp>

#include "core/device/answer.hpp"
#include "sync/optim/computed_step.hpp"

namespace lockstep::detail {

/// The part of `range` that thread number `thread` of `threads` updates: what it added up before, and so has in its
/// cache, if the range is all of a model's memory. It may be empty.
VariableStore::FlatRange part_for(const VariableStore::FlatRange& range, std::size_t thread, std::size_t threads);

/// UpdateKernels::start_sum_of_squares, with the same bits. Threads share the work, if there are some.
Answer<double> start_sum_of_squares(const UpdateKernels& kernels, std::span<const TensorView> parts,
                                    const std::optional<StepThreads>& threads);

}  // namespace lockstep::detail
