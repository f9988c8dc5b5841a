// A call of apply_gradients on this rank, as the phases of a step.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <lockstep/optim/optimizer.hpp>

#include "ops/answer.hpp"
#include "optim/computed_step.hpp"
#include "step/rows.hpp"
#include "step/synchronous_step.hpp"
#include "strategy/context_stack.hpp"

namespace lockstep {
namespace detail {

/// InvalidArgument unless a rank may bring these numbers to a step.
void require_samples(const Call& call, const Optimizer::StepSums& sums);

}  // namespace detail

/// What distinguishes the steps that other parts of the library ask for.
struct Optimizer::How {
  /// If done, every rank has the sums.
  enum class Reduction : std::uint8_t { in_step, done } reduction = Reduction::in_step;
  double divisor = 1;                  ///< of the gradients, where the ranks' numbers say nothing
  std::string_view what_follows = {};  ///< what the program does with the step, for the ranks to compare
};

/// How to update: what to divide the sums in the store by, and the sum of their squares, if it is known. `threads`, if
/// there are some, share the work.
struct Optimizer::Scale {
  double divisor = 1;
  std::optional<double> squares = {};
  const detail::StepThreads* threads = nullptr;
};

class Optimizer::StepOf {
 public:
  /// `slices` are the gradients of this rank that are. All other arguments must outlive this object.
  StepOf(Optimizer& optimizer, const Plan& plan, const Request& request, const How& how,
         std::vector<IndexedSlices> slices);
  StepOf(const StepOf&) = delete;

  /// `agree` is what the ranks compare. Refers to this object.
  SynchronousStep phases(std::string agree);

  /// The ranks' numbers, once they are counted and the step was applied.
  const Optimizer::StepSums& sums() const { return sums_; }

 private:
  bool is_computed() const { return static_cast<bool>(request_.computation.compute); }
  bool is_reduced() const { return how_.reduction == How::Reduction::done; }
  bool has_numbers() const { return is_computed() || request_.own; }
  bool measures_early() const;
  bool sums_statistics_first() const;

  void compute(DeclaredSums& declared);
  void ready(const Variable& variable);
  void ready(const Variable& variable, const IndexedSlices& slices);
  void pack_rows();
  void sum(const RankSums& sums);
  void measure();
  void complete();
  std::vector<TensorView> count();
  bool decide();
  void update(const RankSums& sums);
  std::vector<IndexedSlices> summed_rows(const RankSums& sums);
  std::optional<double> squares(const RankSums& sums);
  void step_and_send(const Scale& scale, std::span<const IndexedSlices> rows, const RankSums& sums);

  Optimizer& optimizer_;
  const Plan& plan_;
  const Request& request_;
  const How& how_;
  std::vector<IndexedSlices> slices_;
  std::vector<char> has_slices_;                ///< of a computation: those that were ready
  RowExchange rows_;                            ///< of these
  std::optional<detail::ComputedStep> inside_;  ///< while there is something to compute, and after it
  std::optional<ops::Answer<double>> squares_;  ///< of the sums, if they are measured before the ranks have counted

  // What is counted.
  Optimizer::StepSums sums_;
  std::array<std::int64_t, 2> integers_{};
  std::array<double, 2> reals_{};
  std::vector<double> blocks_;  ///< of squares; each is another rank's or zero
};

}  // namespace lockstep
