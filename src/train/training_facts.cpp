#include "train/training_facts.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <lockstep/base/digest.hpp>

namespace lockstep {
namespace {

std::string text_of(nn::BatchNormKind kind) {
  switch (kind) {
    case nn::BatchNormKind::none: return "";
    case nn::BatchNormKind::per_shard: return ", batch norm";
    case nn::BatchNormKind::whole_batch: return ", batch norm over the whole batch";
  }
  return "";
}

std::string model_text(const TrainingOptions& options) {
  switch (*options.model) {
    case ModelKind::mlp:
      return fmt::format("mlp of {} hidden units for {} classes", fmt::join(*options.hidden, ","), *options.classes);
    case ModelKind::convnet:
      return fmt::format("convnet for {} classes{}", *options.classes, text_of(*options.batch_norm));
    case ModelKind::gpt:
      return fmt::format("gpt of {} layers, {} heads, width {}, context {}{}", *options.layers, *options.heads,
                         *options.embed, *options.context,
                         options.vocabulary ? fmt::format(", vocabulary {}", *options.vocabulary) : "");
  }
  return "";
}

std::string optimizer_text(const TrainingOptions& options, std::int64_t steps) {
  const auto name = [&] {
    switch (*options.optimizer) {
      case OptimizerKind::sgd: return std::string{"sgd"};
      case OptimizerKind::momentum: return fmt::format("momentum {}", options.momentum);
      case OptimizerKind::adamw: return std::string{"adamw"};
    }
    return std::string{};
  }();
  const std::string schedule =
      options.schedule == ScheduleKind::cosine ? fmt::format(", cosine over {} steps", steps) : "";
  return fmt::format("{}, learning rate {}{}, warm-up {}, weight decay {}, clip norm {}", name, *options.learning_rate,
                     schedule, options.warmup_steps, options.weight_decay,
                     options.clip_norm ? fmt::format("{}", *options.clip_norm) : "none");
}

}  // namespace

TrainingFacts model_facts(const TrainingOptions& options) {
  return {{"model", model_text(options)}, {"dtype", std::string{name_of(*options.dtype)}}};
}

TrainingFacts training_facts(const TrainingOptions& options, const FitOptions& fit, std::uint64_t data_digest) {
  TrainingFacts facts = model_facts(options);
  if (options.model == ModelKind::convnet) facts.emplace_back("dropout", fmt::format("{}", *options.dropout));
  facts.insert(facts.end(), {{"seed", fmt::format("{}", options.seed)},
                             {"optimizer", optimizer_text(options, fit.steps)},
                             {"global batch", fmt::format("{}", fit.global_batch)},
                             {"shards", fmt::format("{}", fit.shards)},
                             {"accumulate", fmt::format("{}", fit.accumulate)},
                             {"data", fmt::format("of digest {}", to_hex(data_digest))}});
  if (const std::string augmentation = to_string(options.augmentation); !augmentation.empty())
    facts.emplace_back("augmentation", augmentation);
  if (options.precision == nn::Precision::bf16) facts.emplace_back("mixed precision", "bf16");
  if (!fit.frozen.empty()) facts.emplace_back("frozen variables", fmt::format("{}", fmt::join(fit.frozen, " ")));
  return facts;
}

}  // namespace lockstep
