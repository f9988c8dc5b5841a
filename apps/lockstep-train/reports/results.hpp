// What a run of lockstep-train leaves, and how it is printed.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <lockstep/models/fit/fit.hpp>

namespace lockstep {

/// Of `Trainer::train`.
struct TrainingResult {
  int ranks;
  int shards;
  std::string device;
  std::string model;
  FitResult fit;
  std::uint64_t weights_digest;
  /// The bytes asked for, or with a vocabulary the numbers of the tokens: a function of the weights, the seed and the
  /// first token of the data. On the chief only, unless the model has diverged.
  std::string sample;
};

/// Of `Trainer::evaluate`.
struct EvaluationResult {
  int ranks;
  int shards;
  std::string device;
  std::string model;
  std::filesystem::path weights;  ///< their file or checkpoint
  std::int64_t steps;             ///< after which they were saved; 0 if unknown
  Observer::Evaluation evaluation;
  std::uint64_t weights_digest;
  std::string sample;  ///< as TrainingResult has it
};

/// Of `Trainer::predict`, for one sample.
struct Prediction {
  struct Class {
    std::int64_t number = 0;
    std::string label = {};  ///< its name in the data; the number, if classes are numbers
    double probability = 0;
  };
  std::int64_t index;                    ///< of the sample, from 0
  Class likeliest = {};                  ///< the lowest number of several
  std::vector<Class> top = {};           ///< TrainingOptions::top classes, the likeliest first
  std::optional<std::string> text = {};  ///< the bytes that a model of text writes instead
  std::optional<double> value = {};      ///< the number that a regression predicts instead, in the label's own unit
};

/// `{"ranks","shards","device","model","steps","samples","seconds","samples_per_second","train_loss","eval_loss",
/// "eval_accuracy","weights_digest"}` on one line, with `"late":[{"replica","share","mostly"},…]` at the end if the
/// others waited for a replica (late_replicas), with "bits_per_byte" after "eval_loss" for a model of text, and
/// "eval_r2" and "eval_mean_absolute_error" in the place of the accuracy for one that predicts numbers.
std::string to_json(const TrainingResult& result);

/// `{"ranks","shards","device","model","weights","steps","eval_samples","seconds","eval_loss","eval_accuracy",
/// "weights_digest"}` on one line, with "bits_per_byte" as above, and without "steps" if they are not known.
std::string to_json(const EvaluationResult& result);

/// `{"index","class","label","probability"}` on one line, `{"index","value"}` for a regression, or `{"index","text"}`
/// with the text as `printable` shows it; with "top", an array of classes as in the former, if it was asked for. The
/// class of a byte is its number.
std::string to_json(const Prediction& prediction);

}  // namespace lockstep
