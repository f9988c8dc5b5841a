// What computations of this library ask of a step, beside what AgreedStep offers.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>

#include <lockstep/optim/optimizer.hpp>

#include "reduce/declared_sums.hpp"

namespace lockstep::detail {

/// Threads of a rank. `run` calls its argument with each number from 0 to `count` - 1, on a thread each, and returns
/// when all are done.
struct StepThreads {
  std::size_t count;
  std::function<void(const std::function<void(std::size_t thread)>&)> run;
};

struct ComputedStep {
  static ComputedStep& of(Optimizer::AgreedStep& step) { return step.inside_; }
  Optimizer::AgreedStep agreed() { return Optimizer::AgreedStep{*this}; }

  DeclaredSums& sums;

  // What AgreedStep::ready does.
  std::function<void(const Variable&)> ready;
  std::function<void(const Variable&, IndexedSlices)> ready_rows;

  /// Adds to the StepSums that the computation returned what is known only when the work that it enqueued on a GPU is
  /// done. What it throws, the computation throws.
  std::function<void(Optimizer::StepSums&)> complete = {};

  /// Makes `gradient_norm` known when the step ends, so that nobody waits for it.
  bool keeps_norm = false;

  /// Measure the gradient together, and update together if the optimizer updates by element. They must live until the
  /// step ends.
  std::optional<StepThreads> threads = {};
};

}  // namespace lockstep::detail
