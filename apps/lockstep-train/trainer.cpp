// What all runs begin with: options, data, model and weights.
#include "apps/lockstep-train/trainer.hpp"

#include <utility>

#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>
#include <lockstep/core/base/hex.hpp>
#include <lockstep/core/base/log.hpp>
#include <lockstep/sync/checkpoint/weights.hpp>

#include "apps/lockstep-train/options/thread_check.hpp"
#include "apps/lockstep-train/saved/training_facts.hpp"
#include "apps/lockstep-train/tasks/same_kernels.hpp"
#include "core/control/meeting_point.hpp"
#include "core/order/shard_request.hpp"
#include "sync/checkpoint/program_state.hpp"
#include "sync/group/replica_group.hpp"
#include "sync/reduce/reductions.hpp"
#include "sync/strategy/inside.hpp"

namespace lockstep {
Trainer::Trainer(Strategy& strategy, std::string device, TrainingOptions options)
    : strategy_{strategy}, device_{std::move(device)}, options_{std::move(options)} {}

void Trainer::set_up(const std::function<void()>& work, Here here) {
  const MeetingPoint::NamedSteps named = inside(strategy_).group().meeting().keep_named_steps();
  strategy_.set_step(0, Strategy::RunKind::setup);
  strategy_.run([&](ReplicaContext&) { work(); }, {}, here);
}

void Trainer::complete_options(RestoredParts restored) {
  request_.saved = find_saved_model(strategy_, options_, restored);
  options_ = complete_by(request_.saved, options_);
}

/// Eight small products instead of a large one cost a CPU little and a GPU much.
ShardRequest::Choice Trainer::choose_shards(int ranks) const {
  if (strategy_.stream().kind() == DeviceKind::cuda && options_.shards.kind == ShardRequest::Kind::automatic)
    return {.shards = ranks, .one_per_rank = true};
  return options_.shards.resolve(ranks);
}

Shares Trainer::shares() const {
  return inside(strategy_).reductions().shares(shards_, ranks(), threads_ > 1);
}

void Trainer::load() {
  const ShardRequest::Choice shards = choose_shards(ranks());
  if (is_chief()) {
    if (!shards.note.empty()) log::info(shards.note);
    if (const std::string warning =
            thread_warning(options_.threads, inside(strategy_).group().ranks_of_node(), find_cores());
        !warning.empty())
      log::warning(warning);
  }
  shards_ = shards.shards;
  threads_ = shards.one_per_rank ? 1 : options_.threads;
  // Threads that share the products change their bits, and there are shards so that nothing does.
  kernels_ = ops::make_kernels(options_.kernels, {shards.one_per_rank ? options_.threads : 1}, strategy_.stream());
  task_ = load_task(options_, request_);
  if (const std::string text = task_->data_text(); is_chief() && !text.empty())
    log::info(fmt::format("data: {}", text));
}

void Trainer::make_model() {
  (void)strategy_.same_on_all(fmt::format("data of digest {}", to_hex(task_->data_digest())));
  require_same_kernels(strategy_, kernels_->fingerprint());
  model_ = &task_->make_model(strategy_, kernels_);
}

WeightsMetadata Trainer::take_initial_weights() {
  strategy_.seal();
  const auto& [file, match] = options_.initial_weights;
  const auto loaded = load_weights(strategy_, file);
  if (loaded.taken == 0)
    throw CheckpointError{fmt::format("--init-from {}: has no value for any variable of this model: {}",
                                      loaded.file.string(), loaded.rest)};
  if (loaded.rest.empty()) return loaded.metadata;
  if (match == InitialWeights::Match::all)
    throw CheckpointError{
        fmt::format("--init-from {}: {}; expected a value of the right type and shape for each variable, and no other "
                    "(--partial takes what matches)",
                    loaded.file.string(), loaded.rest)};
  if (is_chief())
    log::warning(fmt::format("--init-from {}: took {} values; it {}", loaded.file.string(), loaded.taken, loaded.rest));
  return loaded.metadata;
}

Trainer::Restored Trainer::restore_model(const std::function<void()>& check) {
  complete_options(RestoredParts::weights);
  options_.optimizer = OptimizerKind::sgd;  // which needs the least memory
  options_.accumulate = 1;
  set_up([&] {
    load();
    check();
  });
  make_model();
  if (!options_.initial_weights.file.empty()) {
    (void)take_initial_weights();
    return {options_.initial_weights.file};
  }
  if (options_.resume.from == Resume::From::none)
    throw ConfigError{"there are no weights to use: expected --resume or --init-from"};
  strategy_.seal();
  const bool newest = options_.resume.from == Resume::From::newest;
  CheckpointManager checkpoints{strategy_,
                                {.folder = newest ? options_.checkpoints : options_.resume.path,
                                 .training = model_facts(options_),
                                 .weights_only = true}};
  const std::optional<CheckpointManager::Resumed> found =
      newest ? checkpoints.resume_latest() : checkpoints.resume(options_.resume.path);
  if (!found) throw CheckpointError{fmt::format("checkpoint {}: there is none", options_.checkpoints.string())};
  return {found->checkpoint, found->step};
}

void Trainer::export_weights() {
  if (options_.exported_weights.empty()) return;
  save_weights(strategy_, options_.exported_weights, metadata_of(task_->description(), task_->schema()));
  if (is_chief()) log::info(fmt::format("wrote the weights to {}", options_.exported_weights.string()));
}

}  // namespace lockstep
