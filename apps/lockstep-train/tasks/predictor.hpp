// What a model says of samples without labels.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <lockstep/core/order/range.hpp>
#include <lockstep/models/input/sample_source.hpp>
#include <lockstep/models/input/schema.hpp>
#include <lockstep/sync/strategy/strategy.hpp>

#include "apps/lockstep-train/reports/results.hpp"
#include "models/nn/gpt.hpp"

namespace lockstep {

/// Predicts samples, each as a row of numbers that ranks can add up. Every method is LOCAL.
class Predictor {
 public:
  virtual ~Predictor() = default;

  virtual std::int64_t count() const = 0;

  /// Samples that are computed together. The bits depend on it, so it does not depend on the ranks.
  virtual std::int64_t at_once() const = 0;

  /// The length of a row.
  virtual std::int64_t numbers() const = 0;

  /// Fills the rows of these samples, `at_once` or fewer.
  virtual void predict(const Range& samples, std::span<double> rows) = 0;

  /// What the row of sample `index` means.
  virtual Prediction read(std::int64_t index, std::span<const double> row) const = 0;
};

/// The logits of the samples in a batch, [samples, classes] row by row.
using Logits = std::function<std::vector<double>(const SampleBatch&)>;

/// Which classes a class predictor names, and how.
struct NamedClasses {
  std::vector<std::string> labels;  ///< of each class of the model, by its number
  std::optional<std::int64_t> top;  ///< as TrainingOptions has it
};

/// The class of each sample. `samples` and the stream must outlive the result.
std::unique_ptr<Predictor> make_class_predictor(Logits logits, const SampleSource& samples, NamedClasses classes,
                                                Stream& stream);

/// The number that a model predicts for each sample: its only output, of the labels' scale. `samples` and the stream
/// must outlive the result.
std::unique_ptr<Predictor> make_number_predictor(Logits outputs, const SampleSource& samples, DataSchema::Scale scale,
                                                 Stream& stream);

/// What a model of text writes after a line.
struct WrittenText {
  std::int64_t length;              ///< in bytes
  std::uint64_t seed;               ///< plus the line's number, from 0
  std::optional<std::int64_t> top;  ///< how many of the likeliest first bytes to name
};

/// What the model writes after each line. `model` and `lines` must outlive the result.
std::unique_ptr<Predictor> make_text_predictor(nn::Gpt& model, const std::vector<std::string>& lines,
                                               const WrittenText& text);

}  // namespace lockstep
