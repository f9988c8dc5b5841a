// Models that record what `fit` gives them, and data whose sums are exact.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <numeric>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include <lockstep/models/fit/fit.hpp>
#include <lockstep/sync/optim/sgd.hpp>

#include "models/input/batches.hpp"
#include "models/input/samples.hpp"
#include "models/input/text_sets.hpp"
#include "models/input/tokens.hpp"
#include "sync/group/local_group.hpp"
#include "sync/strategy/inside.hpp"

namespace lockstep::test {

/// What a model sees of one call.
struct Seen {
  std::int64_t capacity;
  std::vector<std::int32_t> labels;
  nn::Model::ShardPlace place;
};

/// What it is told of a step.
struct Absorbed {
  std::vector<double> total;
  std::int64_t samples;
};

inline std::span<const std::int32_t> labels_in(const SampleBatch& batch) {
  return batch.labels.view().elements<std::int32_t>().first(static_cast<std::size_t>(batch.counted_labels()));
}

/// One variable of f64, whose gradient is what `gradient` says of each call. Its statistics are the labels of the
/// samples and their squares.
class ScriptedModel final : public nn::Model {
 public:
  using Script = std::function<std::vector<double>(std::size_t call, const SampleBatch& batch)>;

  ScriptedModel(Strategy& strategy, std::int64_t size, Script gradient)
      : gradient_{std::move(gradient)},
        variables_{strategy.create_variable({.name = "w"}, [&] { return Tensor::zeros(DType::f64, {size}); })} {}

  std::string_view name() const override { return "scripted"; }
  std::span<const Variable> variables() const override { return variables_; }

  BatchLoss train_shard(const SampleBatch& batch, const nn::Model::ShardPlace& place,
                        const nn::GradientBuffer& gradients) override {
    const auto labels = labels_in(batch);
    const std::vector<double> gradient = gradient_(seen.size(), batch);
    std::ranges::copy(gradient, gradients.of(variables_.front()).elements<double>().begin());
    seen.push_back({batch.inputs.shape()[0], {labels.begin(), labels.end()}, place});
    double loss = 0, squares = 0;
    for (const std::int32_t label : labels) {
      loss += label;
      squares += label * label;
    }
    std::ranges::copy(std::array{loss, squares}, gradients.statistics().elements<double>().begin());
    return {.loss_sum = loss, .correct = batch.samples};
  }
  std::int64_t statistics() const override { return 2; }
  void absorb_statistics(const TensorView& total, std::int64_t samples) override {
    absorbed.push_back({total.to_vector<double>(), samples});
  }
  BatchLoss evaluate_shard(const SampleBatch& batch) override {
    const auto labels = labels_in(batch);
    evaluated.push_back(batch.samples);
    return {.loss_sum = std::accumulate(labels.begin(), labels.end(), 0.0),
            .correct = std::ranges::count_if(labels, [](std::int32_t label) { return label % 2 == 0; })};
  }

  std::vector<Seen> seen;
  std::vector<Absorbed> absorbed;
  std::vector<std::int64_t> evaluated;  ///< samples of each shard

 private:
  Script gradient_;
  std::vector<Variable> variables_;
};

/// As ScriptedModel, but its labels are masked: those that 3 divides weigh nothing, even ones 1, odd ones a half. What
/// weighs something has a loss of 1 and, in evaluations, is predicted. The gradient is the number of such labels.
class MaskedModel final : public nn::Model {
 public:
  explicit MaskedModel(Strategy& strategy)
      : variables_{strategy.create_variable({.name = "w"}, [] { return Tensor::zeros(DType::f64, {1}); })} {}

  std::string_view name() const override { return "masked"; }
  std::span<const Variable> variables() const override { return variables_; }
  BatchLoss train_shard(const SampleBatch& batch, const nn::Model::ShardPlace&,
                        const nn::GradientBuffer& gradients) override {
    const ops::Kernels::BatchLoss result = evaluate_shard(batch);
    gradients.of(variables_.front()).elements<double>()[0] = result.loss_sum;
    return result;
  }
  BatchLoss evaluate_shard(const SampleBatch& batch) override {
    ops::Kernels::BatchLoss result{.weight = 0};
    for (const std::int32_t label : labels_in(batch)) {
      if (label % 3 == 0) continue;
      result.loss_sum += 1;
      *result.weight += label % 2 == 0 ? 1 : 0.5;
      ++result.correct;
    }
    return result;
  }

 private:
  std::vector<Variable> variables_;
};

class Losses final : public Observer {
 public:
  std::vector<double> losses;
  std::vector<std::int64_t> samples, evaluations_left;
  int evaluations_told = 0;
  void on_step(const Step& report) override {
    losses.push_back(report.loss);
    samples.push_back(report.samples);
    evaluations_left.push_back(report.evaluations_left);
  }
  void on_evaluating(const Evaluation::Progress&) override { ++evaluations_told; }
  void on_evaluation(const Evaluation&) override { ++evaluations_told; }
};

/// `count` images of three pixels, black or white, each with a label of its own.
inline ImageData images(int count) {
  ImageData data;
  data.train.rows = data.test.rows = 1;
  data.train.columns = data.test.columns = 3;
  for (int i = 0; i < count; ++i) {
    for (const int pixel : {i % 2, i / 2 % 2, i / 4 % 2})
      data.train.pixels.push_back(static_cast<std::uint8_t>(255 * pixel));
    data.train.labels.push_back(static_cast<std::uint8_t>(i));
  }
  data.test.pixels.assign(3, 0);
  data.test.labels.assign(1, 0);
  return data;
}

/// Bytes of no pattern, in so many windows.
inline TextSet text(std::int64_t windows, std::int64_t context) {
  std::vector<std::uint8_t> bytes;
  for (std::int64_t i = 0; i <= windows * context; ++i) bytes.push_back(static_cast<std::uint8_t>(i * i % 251));
  return {tokens_of_text(std::move(bytes)), context};
}

/// The first so many labels of a text.
inline std::vector<std::int32_t> labels_of(const TextSet& text, std::int64_t count) {
  std::vector<std::int32_t> labels(static_cast<std::size_t>(count));
  text.tokens->read(1, labels);
  return labels;
}

/// Seven samples, whose labels are the numbers under which they are asked for.
class NumberedSamples final : public SampleSource {
 public:
  std::int64_t count() const override { return 7; }
  bool varies_by_epoch() const override { return true; }
  SampleBatch make_batch(std::int64_t capacity, Stream& stream) const override {
    return lockstep::make_batch(capacity, 3, DType::f64, stream);
  }
  void fill(std::span<const std::int64_t> sample_indices, SampleBatch& batch) const override {
    std::ranges::copy(sample_indices, batch.labels.view().elements<std::int32_t>().begin());
    batch.samples = std::ssize(sample_indices);
  }
};

struct Trained {
  std::vector<Seen> seen;
  std::vector<Absorbed> absorbed;
  std::vector<std::int64_t> evaluated;
  std::vector<double> losses;
  std::vector<std::int64_t> samples, evaluations_left;
  int evaluations_told;
  std::vector<double> weights;
  FitResult result;
};

inline Trained train(const FitOptions::Samples& data, const FitOptions& options, std::int64_t size,
                     ScriptedModel::Script gradient) {
  const auto group = make_local_group();
  Strategy strategy = strategy_on(*group);
  ScriptedModel model{strategy, size, std::move(gradient)};
  Sgd sgd{{.learning_rate = 1}};
  Losses observer;
  const FitResult result = fit(strategy, model, sgd, data, options, observer);
  return {model.seen,
          model.absorbed,
          model.evaluated,
          observer.losses,
          observer.samples,
          observer.evaluations_left,
          observer.evaluations_told,
          model.variables().front().local().to_vector<double>(),
          result};
}

inline Trained train(const ImageData& data, const FitOptions& options, std::int64_t size,
                     ScriptedModel::Script gradient) {
  const ImageSamples train_samples{data.train, DType::f64}, test_samples{data.test, DType::f64};
  return train({train_samples, test_samples}, options, size, std::move(gradient));
}

inline Trained train(const TextSet& train_text, const TextSet& test_text, const FitOptions& options) {
  const TextSamples train_samples{train_text}, test_samples{test_text};
  return train({train_samples, test_samples}, options, 1,
               [](std::size_t, const SampleBatch& batch) -> std::vector<double> {
                 const auto labels = labels_in(batch);
                 return {std::accumulate(labels.begin(), labels.end(), 0.0)};
               });
}

/// The sums of the inputs' columns: exact, so that they do not depend on an order.
inline std::vector<double> column_sums(std::size_t, const SampleBatch& batch) {
  std::vector<double> sums(3);
  const auto inputs = batch.inputs.view().elements<double>();
  for (std::size_t i = 0; i < inputs.size(); ++i) sums[i % 3] += inputs[i];
  return sums;
}

inline std::vector<std::int32_t> labels_of(const std::vector<Seen>& seen) {
  std::vector<std::int32_t> all;
  for (const Seen& each : seen) all.insert(all.end(), each.labels.begin(), each.labels.end());
  return all;
}

}  // namespace lockstep::test
