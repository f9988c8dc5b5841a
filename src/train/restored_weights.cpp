#include "train/restored_weights.hpp"

#include <optional>

#include <fmt/format.h>

#include <lockstep/base/error.hpp>
#include <lockstep/checkpoint/checkpoint_manager.hpp>

#include "train/training_facts.hpp"

namespace lockstep {

RestoredWeights restore_weights(Strategy& strategy, const TrainingOptions& options) {
  if (options.resume.from == Resume::From::none)
    throw ConfigError{"there are no weights to use: expected --resume with a checkpoint"};
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
