// What a file of metrics says.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>
#include <string_view>

#include "apps/lockstep-report/curves.hpp"
#include "apps/lockstep-report/lines.hpp"
#include "apps/lockstep-report/parts.hpp"

namespace lockstep::report {

/// The columns of Metrics::train.
enum TrainColumn : std::size_t {
  train_loss,
  train_learning_rate,
  train_gradient_norm,
  train_samples_per_second,  ///< of the step itself
  train_step_seconds,        ///< what the step took
  train_batch,
};

/// The columns of Metrics::evaluations.
enum EvaluationColumn : std::size_t { eval_loss, eval_accuracy, eval_bits_per_byte, eval_r2, eval_absolute_error };

struct Metrics {
  explicit Metrics(std::size_t most_points) : train{most_points}, evaluations{most_points} {}

  /// A loss that is not finite: the first step and how many steps.
  struct NotFinite {
    std::int64_t first_step;
    std::int64_t steps;
  };
  /// The lowest loss of an evaluation, and its step.
  struct Lowest {
    double loss;
    std::int64_t step;
  };

  Curves train, evaluations;
  PartSums parts;
  std::int64_t steps = 0, epochs = 0;  ///< the last
  double training_seconds = 0;         ///< over all starts
  double evaluation_seconds = 0;
  /// NaN without a step or an evaluation.
  double last_loss = std::numeric_limits<double>::quiet_NaN(), last_evaluation_loss = last_loss;
  std::optional<Lowest> lowest_evaluation_loss;
  std::optional<NotFinite> not_finite;
  ReadLines lines;
};

/// Reads the file in one pass. `lines` says which lines it could not use. Throws as for_each_line.
void read_metrics(const std::filesystem::path& path, Metrics& metrics);

}  // namespace lockstep::report
