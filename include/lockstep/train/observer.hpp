// What a training run tells those who watch it.
#pragma once

#include <cstdint>
#include <optional>

namespace lockstep {

/// After a step. Everything but the times is the same on every rank, and for every number of ranks that share the same
/// shards.
struct StepReport {
  std::int64_t step;     ///< steps done
  std::int64_t steps;    ///< steps of the whole run
  std::int64_t epoch;    ///< that the step belongs to, from 1
  std::int64_t epochs;   ///< that the whole run touches
  std::int64_t samples;  ///< samples seen so far
  double loss;           ///< mean over the labels of the step's global batch, before its update
  double seconds;        ///< spent training so far, evaluations left out
  double samples_per_second;
};

/// After an evaluation on the whole test set.
struct EvaluationReport {
  std::int64_t step;
  std::int64_t epoch;
  double loss;                          ///< mean over the labels of the test set
  std::optional<double> bits_per_byte;  ///< of text: the loss in bits
  double accuracy;                      ///< a fraction of the labels
  double seconds;                       ///< that the evaluation took
};

/// Called on every rank, between steps.
class Observer {
 public:
  virtual ~Observer() = default;
  virtual void on_step(const StepReport& report) = 0;
  virtual void on_evaluation(const EvaluationReport& report) = 0;
};

}  // namespace lockstep
