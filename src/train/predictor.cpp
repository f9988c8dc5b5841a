#include "train/predictor.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include <lockstep/nn/generate.hpp>

#include "train/rank_shards.hpp"

namespace lockstep {
namespace {

constexpr std::int64_t samples_at_once = 64;

class ClassPredictor final : public Predictor {
 public:
  ClassPredictor(Logits logits, const SampleSource& samples, Stream& stream)
      : logits_{std::move(logits)}, source_{samples}, batches_{samples, samples_at_once, {}, {0, 1}, stream} {}

  std::int64_t count() const override { return source_.count(); }
  std::int64_t at_once() const override { return samples_at_once; }
  std::int64_t numbers() const override { return 2; }

  void predict(const Range& samples, std::span<double> rows) override {
    std::vector<std::int64_t> numbers;
    for (std::int64_t i = samples.first; i < samples.last; ++i) numbers.push_back(i);
    const std::vector<double> logits = logits_(batches_.load_all(numbers).group.batches.front());
    const std::size_t classes = logits.size() / numbers.size();
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      const std::span<const double> own = std::span{logits}.subspan(i * classes, classes);
      const auto likeliest = std::ranges::max_element(own);
      double sum = 0;
      for (const double each : own) sum += std::exp(each - *likeliest);
      rows[2 * i] = static_cast<double>(likeliest - own.begin());
      rows[2 * i + 1] = 1 / sum;
    }
  }

  Prediction read(std::int64_t index, std::span<const double> row) const override {
    return {.index = index, .label = static_cast<std::int64_t>(row[0]), .probability = row[1]};
  }

 private:
  Logits logits_;
  const SampleSource& source_;
  RankShards batches_;
};

class TextPredictor final : public Predictor {
 public:
  TextPredictor(nn::Gpt& model, const std::vector<std::string>& lines, std::int64_t length, std::uint64_t seed)
      : model_{model}, lines_{lines}, length_{length}, seed_{seed} {}

  std::int64_t count() const override { return std::ssize(lines_); }
  std::int64_t at_once() const override { return 1; }
  std::int64_t numbers() const override { return length_; }

  void predict(const Range& samples, std::span<double> rows) override {
    // After a line break, so that an empty line is a prompt too.
    const std::string prompt = "\n" + lines_[static_cast<std::size_t>(samples.first)];
    const auto seed = seed_ + static_cast<std::uint64_t>(samples.first);  // so that lines do not end alike
    const std::string text = nn::generate(model_, prompt, {.length = length_, .seed = seed});
    std::ranges::transform(text, rows.begin(), [](char byte) { return static_cast<unsigned char>(byte); });
  }

  Prediction read(std::int64_t index, std::span<const double> row) const override {
    Prediction prediction{.index = index, .text = std::string{}};
    for (const double byte : row) *prediction.text += static_cast<char>(byte);
    return prediction;
  }

 private:
  nn::Gpt& model_;
  const std::vector<std::string>& lines_;
  std::int64_t length_;
  std::uint64_t seed_;
};

}  // namespace

std::unique_ptr<Predictor> make_class_predictor(Logits logits, const SampleSource& samples, Stream& stream) {
  return std::make_unique<ClassPredictor>(std::move(logits), samples, stream);
}

std::unique_ptr<Predictor> make_text_predictor(nn::Gpt& model, const std::vector<std::string>& lines,
                                               std::int64_t length, std::uint64_t seed) {
  return std::make_unique<TextPredictor>(model, lines, length, seed);
}

}  // namespace lockstep
