// What this library asks of a step, beside what programs may ask for.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include <lockstep/sync/optim/optimizer.hpp>

#include "sync/reduce/declared_sums.hpp"

namespace lockstep {
namespace detail {

/// Threads of a rank. `run` calls its argument with each number below `count`, on a thread each, and waits for all.
struct StepThreads {
  std::size_t count;
  std::function<void(const std::function<void(std::size_t thread)>&)> run;
};

/// What a computation finds in an AgreedStep.
struct ComputedStep {
  static ComputedStep& of(Optimizer::AgreedStep& step) { return step.inside_; }
  Optimizer::AgreedStep agreed() { return Optimizer::AgreedStep{*this}; }

  DeclaredSums& sums;

  // What AgreedStep::ready does.
  std::function<void(const Variable&)> ready;
  std::function<void(const Variable&, IndexedSlices)> ready_rows;

  /// Adds to the computation's StepSums what is known only when its work on a GPU is done. Throws as the computation.
  std::function<void(Optimizer::StepSums&)> complete = {};

  /// The sums of each of this rank's subtrees (Shares), known when the computation is completed. Their loss and weight
  /// take the place of those in the computation's StepSums. In a Reductions::OfSubtrees, their statistics take the
  /// place of the request's.
  struct OfSubtree {
    double loss, weight;
    TensorView statistics;
  };
  std::vector<OfSubtree> subtrees = {};

  /// Makes `gradient_norm` known when the step ends, so that nobody waits for it.
  bool keeps_norm = false;

  /// Measure the gradient together, and update together if the optimizer updates by element, to the step's end.
  std::optional<StepThreads> threads = {};
};

}  // namespace detail

/// What distinguishes the steps that other parts of the library ask for.
struct Optimizer::How {
  /// If done, every rank has the sums.
  enum class Reduction : std::uint8_t { in_step, done } reduction = Reduction::in_step;
  double divisor = 1;                  ///< of the gradients, where the ranks' numbers say nothing
  std::string_view what_follows = {};  ///< what the program does with the step, for the ranks to compare
};

/// How to update: what to divide the sums in the store by, the sum of their squares, if known, and who shares the work.
struct Optimizer::Scale {
  double divisor = 1;
  std::optional<double> squares = {};
  const detail::StepThreads* threads = nullptr;
};

}  // namespace lockstep
