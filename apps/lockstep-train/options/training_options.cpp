#include "apps/lockstep-train/options/training_options.hpp"

#include <string_view>
#include <type_traits>
#include <utility>

#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>

namespace lockstep {
namespace {

/// Found with scripts/sweep-defaults. With momentum, a gradient counts ten times, as momentum is 0.9.
double default_learning_rate(ModelKind model, OptimizerKind optimizer) {
  if (optimizer == OptimizerKind::adamw) return 0.001;
  if (optimizer == OptimizerKind::sgd) return 0.1;
  return model == ModelKind::mlp ? 0.03 : 0.01;
}

void require_options_of_task(const TrainingOptions& options) {
  if (options.task != DataSchema::Task::regression) return;
  for (const auto& [option, given] : {std::pair{"--classes", options.classes}, std::pair{"--top", options.top}})
    if (given) throw ConfigError{fmt::format("{}: expected only with --task classes", option)};
}

}  // namespace

TrainingOptions with_defaults(TrainingOptions options) {
  const auto fill = []<class Value>(std::optional<Value>& option, std::type_identity_t<Value> value) {
    if (!option) option = std::move(value);
  };
  fill(options.model, ModelKind::mlp);
  fill(options.dtype, DType::f32);
  fill(options.precision, nn::Model::Precision::full);
  fill(options.label_column, "label");
  fill(options.test_fraction, 0.1);
  fill(options.task, DataSchema::Task::classes);
  fill(options.scaling, DataSchema::Scaling::none);
  fill(options.hidden, {512, 512});
  fill(options.batch_norm, nn::ConvnetOptions::BatchNorm::none);
  fill(options.dropout, 0);
  fill(options.layers, 4);
  fill(options.heads, 4);
  fill(options.embed, 128);
  fill(options.context, 128);
  // They differ for text, where a sample has many labels and a text has many samples.
  const bool text = options.model == ModelKind::gpt;
  if (!options.steps) fill(options.epochs, text ? 1 : 5);
  fill(options.global_batch, text ? 16 : 256);
  fill(options.optimizer, text ? OptimizerKind::adamw : OptimizerKind::momentum);
  fill(options.learning_rate, default_learning_rate(*options.model, *options.optimizer));
  return options;
}

void require_options_of(ModelKind model, const TrainingOptions& options) {
  const auto refuse = [](const char* option, bool given, std::string_view models) {
    if (given) throw ConfigError{fmt::format("{}: expected only with --model {}", option, models)};
  };
  if (model != ModelKind::mlp) {
    refuse("--label-column", options.label_column.has_value(), "mlp");
    refuse("--test-fraction", options.test_fraction.has_value(), "mlp");
    refuse("--task", options.task.has_value(), "mlp");
    refuse("--scale", options.scaling.has_value(), "mlp");
    refuse("--hidden", options.hidden.has_value(), "mlp");
  }
  if (model != ModelKind::convnet) {
    const bool whole = options.batch_norm == nn::ConvnetOptions::BatchNorm::whole_batch;
    refuse(whole ? "--sync-batch-norm" : "--batch-norm", options.batch_norm.has_value(), "convnet");
    refuse("--dropout", options.dropout.has_value(), "convnet");
  }
  if (options.audit_every && options.batch_norm == nn::ConvnetOptions::BatchNorm::whole_batch)
    throw ConfigError{
        "--audit-every: batch norm over the whole batch computes all shards together, and no other rank can compute "
        "one by itself; expected --batch-norm without --sync-batch-norm"};
  if (model == ModelKind::gpt) {
    refuse("--classes", options.classes.has_value(), "mlp or convnet");
    refuse("--augment", options.augmentation != AugmentedSamples::Augmentation{}, "mlp or convnet");
    return;
  }
  require_options_of_task(options);
  refuse("--preset", options.preset.has_value(), "gpt");
  refuse("--layers", options.layers.has_value(), "gpt");
  refuse("--heads", options.heads.has_value(), "gpt");
  refuse("--embed", options.embed.has_value(), "gpt");
  refuse("--context", options.context.has_value(), "gpt");
  refuse("--vocabulary", options.vocabulary.has_value(), "gpt");
  refuse("--binary", options.binary, "gpt");
  refuse("--recompute", options.recompute, "gpt");
  refuse("--sample", options.sample > 0, "gpt");
}

}  // namespace lockstep
