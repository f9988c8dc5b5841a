// What weights say of their model and its data, and what a run takes from that.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include <lockstep/models/input/schema.hpp>
#include <lockstep/sync/checkpoint/checkpoint_manager.hpp>
#include <lockstep/sync/strategy/strategy.hpp>

#include "apps/lockstep-train/options/training_options.hpp"
#include "apps/lockstep-train/saved/model_description.hpp"
#include "sync/checkpoint/program_state.hpp"

namespace lockstep {

/// Weights that a run begins with. Those of older versions and of other programs say nothing of their model.
struct SavedModel {
  /// Whether the run is about that model: goes on with its training, evaluates it, or predicts with it. Otherwise, it
  /// is a new training that only begins with these weights.
  enum class Role : std::uint8_t { restored, initial };

  Role role = Role::restored;
  std::filesystem::path from;  ///< as the options name them
  std::optional<ModelDescription> model = {};
  std::optional<DataSchema> data = {};
};

/// What is saved with the weights of a model.
WeightsMetadata metadata_of(const ModelDescription& model, const DataSchema& data);

/// What a run takes from a checkpoint.
enum class RestoredParts : std::uint8_t { everything, weights };

/// COLL. The weights that a run restores: those of a checkpoint, or else the initial ones. Nothing if it restores none,
/// if there is no checkpoint yet to go on from, and if a new training begins with weights that describe nothing, or
/// with a part of them (InitialWeights::Match::some). CheckpointError for weights that cannot be read, or that describe
/// a model or data that this version does not know. Weights that are used and describe nothing are a warning.
std::optional<SavedModel> find_saved_model(Strategy& strategy, const TrainingOptions& options, RestoredParts restored);

/// LOCAL. The options, with what the weights say in the place of those that were not given, and otherwise the defaults.
/// ConfigError for an option that was given and is none of the model's, that contradicts restored weights, or that
/// contradicts how the model of initial weights uses its data: task, scaling, and the number of classes of a table.
TrainingOptions complete_by(const std::optional<SavedModel>& saved, TrainingOptions options);

/// LOCAL. Logs a warning if the model of weights takes other columns than those of `data`, or in another order: this is
/// no fault where a part of the weights is taken.
void warn_of_columns(const WeightsMetadata& described, const std::filesystem::path& from, const DataSchema& data);

}  // namespace lockstep
