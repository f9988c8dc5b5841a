#include "apps/lockstep-train/saved/training_facts.hpp"

#include <algorithm>
#include <map>
#include <ranges>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <lockstep/core/base/hex.hpp>
#include <lockstep/core/order/range.hpp>

#include "sync/checkpoint/program_state.hpp"

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

/// "0-3", or "5" for a single one.
std::string shards_text(const Range& shards) {
  return shards.size() == 1 ? fmt::format("{}", shards.first) : fmt::format("{}-{}", shards.first, shards.last - 1);
}

/// The shards of each node, as runs of neighbours. Nodes come in the order of their first shards.
std::vector<std::vector<Range>> shards_of_nodes(std::span<const int> node_of_rank, int shards) {
  std::vector<std::vector<Range>> nodes;
  std::map<int, std::size_t> index_of;
  for (std::size_t rank = 0; rank < node_of_rank.size(); ++rank) {
    const Range own = Range::of_rank(shards, static_cast<int>(node_of_rank.size()), static_cast<int>(rank));
    const std::size_t index = index_of.try_emplace(node_of_rank[rank], nodes.size()).first->second;
    if (index == nodes.size()) nodes.emplace_back();
    std::vector<Range>& runs = nodes[index];
    if (!runs.empty() && runs.back().last == own.first)
      runs.back().last = own.last;
    else
      runs.push_back(own);
  }
  return nodes;
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

std::string compression_text(DType compression, std::span<const int> node_of_rank, int shards) {
  const std::vector<std::vector<Range>> nodes = shards_of_nodes(node_of_rank, shards);
  const std::int64_t of_first = nodes.front().front().size();
  const bool are_alike = std::ranges::all_of(
      nodes, [&](const std::vector<Range>& runs) { return runs.size() == 1 && runs.front().size() == of_first; });
  if (are_alike)
    return fmt::format("{} between nodes of {} shard{}", name_of(compression), of_first, of_first == 1 ? "" : "s");
  std::vector<std::string> texts;
  for (const std::vector<Range>& runs : nodes)
    texts.push_back(fmt::format("{}", fmt::join(std::views::transform(runs, shards_text), "+")));
  return fmt::format("{} between nodes of shards {}", name_of(compression), fmt::join(texts, ", "));
}

}  // namespace lockstep
