// What the benchmark of training steps trains: the models of lockstep-train, on random samples, so that it needs no
// files.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include <lockstep/models/input/idx.hpp>
#include <lockstep/models/input/sample_source.hpp>
#include <lockstep/models/nn/model.hpp>
#include <lockstep/models/nn/models.hpp>
#include <lockstep/sync/optim/optimizer.hpp>

namespace lockstep::bench {

enum class StepModel : std::uint8_t { mlp, convnet, gpt };

/// As --model has it.
std::string_view name_of(StepModel model);

/// Units in each of the mlp's two hidden layers, as lockstep-train has them.
constexpr std::int64_t default_hidden = 512;

/// Images of 28 x 28 in 10 classes; for gpt, windows of 128 bytes. The same on every rank.
class RandomSamples {
 public:
  RandomSamples(StepModel model, std::int64_t count);
  RandomSamples(const RandomSamples&) = delete;

  const SampleSource& source() const { return *source_; }

 private:
  ImageData::Set images_;  ///< empty for gpt
  std::unique_ptr<SampleSource> source_;
};

/// COLL. Creates the variables of a model of lockstep-train's default size, but for the mlp's `hidden` units.
std::unique_ptr<nn::Model> make_model(StepModel model, std::int64_t hidden, Strategy& strategy,
                                      std::shared_ptr<const ops::Kernels> kernels,
                                      nn::Model::Precision precision = nn::Model::Precision::full);

/// The number of elements of all its variables.
std::int64_t parameters_of(const nn::Model& model);

/// LOCAL. What this rank keeps of the state of its optimizers.
std::int64_t state_bytes_of(const nn::Model& model);

/// The model's optimizer: momentum, or AdamW for gpt.
std::unique_ptr<Optimizer> make_optimizer(StepModel model);

}  // namespace lockstep::bench
