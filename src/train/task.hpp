// What is trained on what: the seam between a run and the kinds of data and models.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include <lockstep/nn/model.hpp>
#include <lockstep/strategy/strategy.hpp>
#include <lockstep/train/fit.hpp>
#include <lockstep/train/training.hpp>

#include "train/model_memory.hpp"

namespace lockstep {

/// The data of a run, and the model that its options ask for.
class TrainingTask {
 public:
  virtual ~TrainingTask() = default;

  /// Views of the data, for as long as the task lives.
  virtual TrainingSamples samples() const = 0;

  /// Equal on two ranks when they loaded the same data.
  virtual std::uint64_t data_digest() const = 0;

  /// LOCAL. ConfigError for a model that has no place for these data, or, in a run of `fit`, none in `room`.
  virtual void require_model_fits(const FitOptions& fit, const Room& room) const = 0;

  /// COLL. Creates the variables of the model, which lives as long as the task.
  virtual nn::Model& make_model(Strategy& strategy, std::shared_ptr<const ops::Kernels> kernels) = 0;

  /// LOCAL. What the options ask the trained model to write; empty where they ask for nothing.
  virtual std::string write_sample() = 0;
};

/// LOCAL. Reads the data. ConfigError for what is wrong with them, or with the options of the model. `options` have
/// nothing left open, and must outlive the result.
std::unique_ptr<TrainingTask> load_image_task(const TrainingOptions& options);
std::unique_ptr<TrainingTask> load_text_task(const TrainingOptions& options);

}  // namespace lockstep
