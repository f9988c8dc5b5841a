#include "apps/lockstep-train/tasks/predictor.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include <lockstep/models/nn/generate.hpp>

#include "core/base/printable.hpp"
#include "models/fit/rank_shards.hpp"
#include "models/nn/gpt.hpp"

namespace lockstep {
namespace {

constexpr std::int64_t samples_at_once = 64;

/// Fills `row` with the numbers and the probabilities of the likeliest classes, the likeliest first.
void name_classes(std::span<const double> logits, std::span<double> row) {
  std::vector<std::size_t> order(logits.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  // Weights that are not finite make logits that are none, which no order knows.
  const auto key = [&](std::size_t i) {
    return std::isnan(logits[i]) ? -std::numeric_limits<double>::infinity() : logits[i];
  };
  std::ranges::partial_sort(order, order.begin() + std::ssize(row) / 2, [&](std::size_t one, std::size_t other) {
    return std::pair{-key(one), one} < std::pair{-key(other), other};
  });
  const double largest = logits[order.front()];
  double sum = 0;
  for (const double each : logits) sum += std::exp(each - largest);
  for (std::size_t i = 0; i < row.size(); i += 2) {
    row[i] = static_cast<double>(order[i / 2]);
    row[i + 1] = std::exp(logits[order[i / 2]] - largest) / sum;
  }
}

/// What `name_classes` has written, with the names of classes by their numbers.
std::vector<Prediction::Class> named(std::span<const double> row, const std::vector<std::string>& labels) {
  std::vector<Prediction::Class> classes;
  for (std::size_t i = 0; i < row.size(); i += 2) {
    const auto number = static_cast<std::size_t>(row[i]);
    classes.push_back({static_cast<std::int64_t>(number), labels.at(number), row[i + 1]});
  }
  return classes;
}

/// What a model says of samples that it takes batch by batch.
class SamplePredictor : public Predictor {
 public:
  std::int64_t count() const override { return source_.count(); }
  std::int64_t at_once() const override { return samples_at_once; }

 protected:
  SamplePredictor(Logits outputs, const SampleSource& samples, Stream& stream)
      : outputs_{std::move(outputs)}, source_{samples}, batches_{samples, samples_at_once, {}, {0, 1}, stream} {}

  /// The outputs of the model, sample after sample.
  std::vector<double> outputs_of(const Range& samples) {
    std::vector<std::int64_t> numbers;
    for (std::int64_t i = samples.first; i < samples.last; ++i) numbers.push_back(i);
    return outputs_(batches_.load_all(numbers).group.batches.front());
  }

 private:
  Logits outputs_;
  const SampleSource& source_;
  RankShards batches_;
};

class NumberPredictor final : public SamplePredictor {
 public:
  NumberPredictor(Logits outputs, const SampleSource& samples, DataSchema::Scale scale, Stream& stream)
      : SamplePredictor{std::move(outputs), samples, stream}, scale_{scale} {}

  std::int64_t numbers() const override { return 1; }

  void predict(const Range& samples, std::span<double> rows) override {
    std::ranges::transform(outputs_of(samples), rows.begin(),
                           [&](double output) { return output * scale_.deviation + scale_.mean; });
  }

  Prediction read(std::int64_t index, std::span<const double> row) const override {
    return {.index = index, .value = row.front()};
  }

 private:
  DataSchema::Scale scale_;
};

class ClassPredictor final : public SamplePredictor {
 public:
  ClassPredictor(Logits logits, const SampleSource& samples, NamedClasses classes, Stream& stream)
      : SamplePredictor{std::move(logits), samples, stream}, classes_{std::move(classes)} {}

  std::int64_t numbers() const override { return 2 * classes_.top.value_or(1); }

  void predict(const Range& samples, std::span<double> rows) override {
    const std::vector<double> logits = outputs_of(samples);
    const auto count = static_cast<std::size_t>(samples.size());
    const std::size_t classes = logits.size() / count, length = rows.size() / count;
    for (std::size_t i = 0; i < count; ++i)
      name_classes(std::span{logits}.subspan(i * classes, classes), rows.subspan(i * length, length));
  }

  Prediction read(std::int64_t index, std::span<const double> row) const override {
    Prediction prediction{.index = index, .top = named(row, classes_.labels)};
    prediction.likeliest = prediction.top.front();
    if (!classes_.top) prediction.top.clear();
    return prediction;
  }

 private:
  NamedClasses classes_;
};

class TextPredictor final : public Predictor {
 public:
  TextPredictor(nn::Gpt& model, const std::vector<std::string>& lines, const WrittenText& text)
      : model_{model}, lines_{lines}, text_{text} {
    for (int byte = 0; byte < 256; ++byte) labels_.push_back(printable(std::string(1, static_cast<char>(byte))));
  }

  std::int64_t count() const override { return std::ssize(lines_); }
  std::int64_t at_once() const override { return 1; }
  std::int64_t numbers() const override { return text_.length + 2 * text_.top.value_or(0); }

  /// A row has the bytes of the text, then what `name_classes` writes of the first of them.
  void predict(const Range& samples, std::span<double> rows) override {
    // After a line break, so that an empty line is a prompt too.
    const std::string prompt = "\n" + lines_[static_cast<std::size_t>(samples.first)];
    const auto seed = text_.seed + static_cast<std::uint64_t>(samples.first);  // so that lines do not end alike
    const std::string text = nn::generate(model_, prompt, {.length = text_.length, .seed = seed});
    std::ranges::transform(text, rows.begin(), [](char byte) { return static_cast<unsigned char>(byte); });
    if (!text_.top) return;
    const auto context = static_cast<std::size_t>(model_.options().context);
    std::vector<std::int32_t> known;
    for (const char byte : prompt.substr(prompt.size() - std::min(prompt.size(), context)))
      known.push_back(static_cast<unsigned char>(byte));
    const std::vector<double> logits = model_.logits_after(known);
    name_classes(std::span{logits}.last(labels_.size()), rows.subspan(text.size()));
  }

  Prediction read(std::int64_t index, std::span<const double> row) const override {
    const auto length = static_cast<std::size_t>(text_.length);
    Prediction prediction{.index = index, .top = named(row.subspan(length), labels_), .text = std::string{}};
    for (const double byte : row.first(length)) *prediction.text += static_cast<char>(byte);
    return prediction;
  }

 private:
  nn::Gpt& model_;
  const std::vector<std::string>& lines_;
  WrittenText text_;
  std::vector<std::string> labels_;  ///< of bytes
};

}  // namespace

std::unique_ptr<Predictor> make_class_predictor(Logits logits, const SampleSource& samples, NamedClasses classes,
                                                Stream& stream) {
  return std::make_unique<ClassPredictor>(std::move(logits), samples, std::move(classes), stream);
}

std::unique_ptr<Predictor> make_number_predictor(Logits outputs, const SampleSource& samples, DataSchema::Scale scale,
                                                 Stream& stream) {
  return std::make_unique<NumberPredictor>(std::move(outputs), samples, scale, stream);
}

std::unique_ptr<Predictor> make_text_predictor(nn::Gpt& model, const std::vector<std::string>& lines,
                                               const WrittenText& text) {
  return std::make_unique<TextPredictor>(model, lines, text);
}

}  // namespace lockstep
