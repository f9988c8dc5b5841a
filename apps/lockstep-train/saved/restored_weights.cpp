#include "apps/lockstep-train/saved/restored_weights.hpp"

#include <optional>

#include <fmt/format.h>

#include <lockstep/base/error.hpp>
#include <lockstep/base/log.hpp>
#include <lockstep/checkpoint/checkpoint_manager.hpp>
#include <lockstep/checkpoint/weights.hpp>

#include "apps/lockstep-train/saved/training_facts.hpp"

namespace lockstep {

WeightsMetadata initialize_weights(Strategy& strategy, const TrainingOptions& options) {
  strategy.seal();
  const auto& [file, match] = options.initial_weights;
  const LoadedWeights loaded = load_weights(strategy, file);
  if (loaded.taken == 0)
    throw CheckpointError{fmt::format("--init-from {}: has no value for any variable of this model: {}",
                                      loaded.file.string(), loaded.rest)};
  if (loaded.rest.empty()) return loaded.metadata;
  if (match == InitialWeights::Match::all)
    throw CheckpointError{
        fmt::format("--init-from {}: {}; expected a value of the right type and shape for each variable, and no other "
                    "(--partial takes what matches)",
                    loaded.file.string(), loaded.rest)};
  if (strategy.group().rank() == 0)
    log::warning(fmt::format("--init-from {}: took {} values; it {}", loaded.file.string(), loaded.taken, loaded.rest));
  return loaded.metadata;
}

RestoredWeights restore_weights(Strategy& strategy, const TrainingOptions& options) {
  if (!options.initial_weights.file.empty()) {
    (void)initialize_weights(strategy, options);
    return {options.initial_weights.file};
  }
  if (options.resume.from == Resume::From::none)
    throw ConfigError{"there are no weights to use: expected --resume or --init-from"};
  strategy.seal();
  const bool newest = options.resume.from == Resume::From::newest;
  CheckpointManager checkpoints{strategy,
                                {.folder = newest ? options.checkpoints : options.resume.path,
                                 .training = model_facts(options),
                                 .restores = RestoredParts::weights}};
  const std::optional<ResumedTraining> found =
      newest ? checkpoints.resume_latest() : checkpoints.resume(options.resume.path);
  if (!found) throw CheckpointError{fmt::format("checkpoint {}: there is none", options.checkpoints.string())};
  return {found->checkpoint, found->step};
}

}  // namespace lockstep
