// What rebuilds a model from its weights, in a text that is saved with them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <lockstep/core/base/dtype.hpp>
#include <lockstep/core/base/shape.hpp>
#include <lockstep/models/nn/models.hpp>

#include "apps/lockstep-train/options/training_options.hpp"

namespace lockstep {

/// A model of lockstep-train: its kind and its sizes. What a kind does not have stays as it is here.
struct ModelDescription {
  ModelKind kind = ModelKind::mlp;
  DType dtype = DType::f32;
  nn::Model::Precision precision = nn::Model::Precision::full;
  // mlp and convnet
  Shape sample = {};                      ///< what a sample is: [numbers], [height, width] or [height, width, channels]
  std::int64_t outputs = 0;               ///< classes, or 1 of a squared error
  std::vector<std::int64_t> hidden = {};  ///< mlp alone, as the loss
  nn::MlpOptions::Loss loss = nn::MlpOptions::Loss::cross_entropy;
  nn::ConvnetOptions::BatchNorm batch_norm = nn::ConvnetOptions::BatchNorm::none;
  double dropout = 0;
  // gpt
  std::int64_t layers = 0;
  std::int64_t heads = 0;
  std::int64_t embed = 0;
  std::int64_t context = 0;
  std::int64_t vocabulary = 0;

  bool operator==(const ModelDescription&) const = default;
};

/// "mlp", "convnet" or "gpt".
std::string_view name_of(ModelKind kind);

/// One line of JSON. It also says what is the same in all models of a kind, such as layouts, padding and epsilons, for
/// programs that rebuild the model without this library.
std::string to_json(const ModelDescription& model);

/// The opposite. Error for a text that is none, names another form of layer than this library computes, or has sizes
/// that no model has.
ModelDescription parse_model_description(std::string_view json);

}  // namespace lockstep
