// What a model function returns: its loss, predictions and metrics.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include <lockstep/core/tensor/tensor.hpp>
#include <lockstep/sync/strategy/variable.hpp>

namespace lockstep {

/// What a model function returns for its piece of the batch. After the call: what all replicas returned together.
struct EstimatorSpec {
  /// What a model function is called for.
  enum class Mode : std::uint8_t { train, evaluate, predict };

  /// A metric computed from sums over all samples, such as an accuracy from the numbers of hits and of samples.
  struct EvalMetric {
    /// Tower::accumulator, or other sync-on-read variables that are summed. Reading does not change them.
    std::vector<SyncOnReadVariable> accumulators;
    /// The metric, from the accumulators' sums over the replicas: host tensors, in the order of `accumulators`.
    std::function<double(std::span<const Tensor>)> value;
  };

  /// What a program that serves the model returns. All tensors have one row for each sample, except `classes`.
  using PredictOutput = std::map<std::string, Tensor>;
  using RegressionOutput = Tensor;
  struct ClassificationOutput {
    std::optional<Tensor> scores = {};
    std::optional<Tensor> classes = {};  ///< one entry for each class, such as its number
  };
  using ExportOutput = std::variant<PredictOutput, RegressionOutput, ClassificationOutput>;

  std::optional<Tensor> loss = {};  ///< one number, whose gradients were applied
  std::map<std::string, Tensor> predictions = {};
  std::map<std::string, ExportOutput> export_outputs = {};
  std::map<std::string, EvalMetric> eval_metrics = {};
  /// The values of `eval_metrics`. ReplicatedModel sets them in Mode::evaluate; model functions leave them empty.
  std::map<std::string, double> metrics = {};
};

}  // namespace lockstep
