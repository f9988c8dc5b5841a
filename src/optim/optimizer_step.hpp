// A call of apply_gradients on this rank, as the phases of a step.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <lockstep/optim/optimizer.hpp>

#include "ops/answer.hpp"
#include "optim/row_sums.hpp"
#include "step/synchronous_step.hpp"
#include "strategy/context_stack.hpp"

namespace lockstep {
namespace detail {

/// InvalidArgument unless a rank may bring these numbers to a step.
void require_samples(const Call& call, const Optimizer::StepSums& sums);

}  // namespace detail

class Optimizer::StepOf {
 public:
  /// `slices` are the gradients of this rank that are. All other arguments must outlive this object.
  StepOf(Optimizer& optimizer, const Plan& plan, const Request& request, std::vector<IndexedSlices> slices);
  StepOf(const StepOf&) = delete;

  /// `agree` is what the ranks compare. Whatever is returned refers to this object.
  SynchronousStep phases(std::string agree);

 private:
  void compute(DeclaredSums& declared);
  void sum(const RankSums& sums);
  void measure();
  void complete();
  std::vector<TensorView> count();
  bool decide();
  void update(const RankSums& sums);
  std::optional<double> squares(const RankSums& sums);
  void step_and_send(const Scale& scale, std::span<const detail::RowSums> rows, const RankSums& sums);

  bool sums_statistics_first() const;

  Optimizer& optimizer_;
  const Plan& plan_;
  const Request& request_;
  std::vector<IndexedSlices> slices_;
  std::optional<AgreedStep> agreed_;            ///< while there is something to compute, and after it
  std::optional<ops::Answer<double>> squares_;  ///< of the sums, if they are measured before the ranks have counted

  // What is counted.
  std::array<std::int64_t, 2> integers_{};
  std::array<double, 2> reals_{};
  std::vector<double> blocks_;  ///< of squares; each is another rank's or zero
};

}  // namespace lockstep
