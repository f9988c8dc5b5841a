#include "apps/lockstep-train/saved/training_facts.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <lockstep/base/hex.hpp>

#include "checkpoint/program_state.hpp"

namespace lockstep {
namespace {

std::string text_of(nn::ConvnetOptions::BatchNorm kind) {
  switch (kind) {
    case nn::ConvnetOptions::BatchNorm::none: return "";
    case nn::ConvnetOptions::BatchNorm::per_shard: return ", batch norm";
    case nn::ConvnetOptions::BatchNorm::whole_batch: return ", batch norm over the whole batch";
  }
  return "";
}

std::string model_text(const TrainingOptions& options) {
  switch (*options.model) {
    case ModelKind::mlp:
      return fmt::format(
          "mlp of {} hidden units for {}", fmt::join(*options.hidden, ","),
          options.task == DataSchema::Task::regression ? "a number" : fmt::format("{} classes", *options.classes));
    case ModelKind::convnet:
      return fmt::format("convnet for {} classes{}", *options.classes, text_of(*options.batch_norm));
    case ModelKind::gpt:
      return fmt::format("gpt of {} layers, {} heads, width {}, context {}{}", *options.layers, *options.heads,
                         *options.embed, *options.context,
                         options.vocabulary ? fmt::format(", vocabulary {}", *options.vocabulary) : "");
  }
  return "";
}

std::string optimizer_text(const TrainingOptions& options) {
  const auto name = [&] {
    switch (*options.optimizer) {
      case OptimizerKind::sgd: return std::string{"sgd"};
      case OptimizerKind::momentum: return fmt::format("momentum {}", options.momentum);
      case OptimizerKind::adamw: return std::string{"adamw"};
    }
    return std::string{};
  }();
  return fmt::format("{}, weight decay {}, clip norm {}", name, options.weight_decay,
                     options.clip_norm ? fmt::format("{}", *options.clip_norm) : "none");
}

void add_schedule(TrainingFacts& facts, const TrainingOptions& options, std::int64_t steps) {
  const bool decays = options.schedule == ScheduleKind::cosine;
  facts.emplace_back("schedule", decays ? "cosine" : "constant");
  if (decays) facts.emplace_back("decay steps", fmt::format("{}", steps));
}

}  // namespace

TrainingFacts model_facts(const TrainingOptions& options) {
  return {{"model", model_text(options)}, {"dtype", std::string{name_of(*options.dtype)}}};
}

TrainingFacts training_facts(const TrainingOptions& options, const FitOptions& fit, std::uint64_t data_digest) {
  TrainingFacts facts = model_facts(options);
  if (options.model == ModelKind::convnet) facts.emplace_back("dropout", fmt::format("{}", *options.dropout));
  facts.insert(facts.end(), {{"seed", fmt::format("{}", options.seed)},
                             {"optimizer", optimizer_text(options)},
                             {"learning rate", fmt::format("{}", *options.learning_rate)},
                             {"warm-up", fmt::format("{}", options.warmup_steps)}});
  add_schedule(facts, options, fit.steps);
  facts.insert(facts.end(), {{"global batch", fmt::format("{}", fit.global_batch)},
                             {"shards", fmt::format("{}", fit.shards)},
                             {"accumulate", fmt::format("{}", fit.accumulate)},
                             {"data", fmt::format("of digest {}", to_hex(data_digest))}});
  if (const std::string augmentation = describe(options.augmentation); !augmentation.empty())
    facts.emplace_back("augmentation", augmentation);
  if (options.precision == nn::Model::Precision::bf16) facts.emplace_back("mixed precision", "bf16");
  if (!fit.frozen.empty()) facts.emplace_back("frozen variables", fmt::format("{}", fmt::join(fit.frozen, " ")));
  return facts;
}

}  // namespace lockstep
