#include "apps/lockstep-train/saved/training_difference.hpp"

#include <algorithm>
#include <optional>
#include <ranges>
#include <string_view>

#include <fmt/format.h>

#include <lockstep/core/base/log.hpp>

#include "apps/lockstep-train/saved/shared_shards.hpp"
#include "sync/checkpoint/manifest.hpp"
#include "sync/checkpoint/program_state.hpp"

namespace lockstep {
namespace {

/// An option that makes facts of a checkpoint this training's own.
struct OverrideRow {
  Resume::Override override;
  const char* name;                ///< of the option
  std::vector<std::string> facts;  ///< the first is the one that the option is for
};

std::vector<OverrideRow> override_rows() {
  return {{Resume::Override::learning_rate, "learning-rate", {"learning rate"}},
          {Resume::Override::schedule, "schedule", {"schedule", "decay steps"}},
          {Resume::Override::warmup_steps, "warmup-steps", {"warm-up"}},
          {Resume::Override::steps, "steps", {"decay steps"}}};
}

std::optional<std::string> value_in(const TrainingFacts& facts, std::string_view name) {
  const auto found = std::ranges::find(facts, name, &TrainingFacts::value_type::first);
  return found == facts.end() ? std::nullopt : std::optional{found->second};
}

/// Older versions wrote one fact of the optimizer: "momentum 0.9, learning rate 0.03, cosine over 12 steps, warm-up 0,
/// weight decay 0, clip norm none".
TrainingFacts in_parts(const TrainingFacts& facts) {
  const auto optimizer = value_in(facts, "optimizer");
  if (!optimizer || value_in(facts, "learning rate")) return facts;
  TrainingFacts parts = facts;
  std::erase_if(parts, [](const auto& fact) { return fact.first == "optimizer"; });
  std::string rest, schedule = "constant";
  for (const auto& each : std::views::split(*optimizer, std::string_view{", "})) {
    const std::string_view part{each.begin(), each.end()};
    const auto is = [&](std::string_view name) { return part.starts_with(name); };
    const auto after = [&](std::string_view name) { return std::string{part.substr(name.size())}; };
    if (is("learning rate ")) {
      parts.emplace_back("learning rate", after("learning rate "));
    } else if (is("warm-up ")) {
      parts.emplace_back("warm-up", after("warm-up "));
    } else if (is("cosine over ")) {
      schedule = "cosine";
      const std::string steps = after("cosine over ");
      parts.emplace_back("decay steps", steps.substr(0, steps.find(' ')));
    } else {
      (rest += rest.empty() ? "" : ", ") += part;
    }
  }
  parts.insert(parts.end(), {{"optimizer", rest}, {"schedule", schedule}});
  return parts;
}

/// Gives `there` the value that `here` has.
void adopt(TrainingFacts& there, const TrainingFacts& here, const std::string& name) {
  std::erase_if(there, [&](const auto& fact) { return fact.first == name; });
  if (const auto ours = value_in(here, name)) there.emplace_back(name, *ours);
}

void override_facts(TrainingFacts& there, const TrainingFacts& here, const OverrideRow& row) {
  for (const std::string& name : row.facts) {
    const std::string theirs = value_in(there, name).value_or("none"), ours = value_in(here, name).value_or("none");
    if (theirs != ours) log::info(fmt::format("--override {}: {} {} instead of {}", row.name, name, ours, theirs));
    adopt(there, here, name);
  }
}

/// The options that make `there` agree with `here`; empty if none do.
std::string helpful_overrides(TrainingFacts there, const TrainingFacts& here) {
  std::string options;
  for (const OverrideRow& row : override_rows())
    if (value_in(there, row.facts.front()) != value_in(here, row.facts.front())) {
      for (const std::string& name : row.facts) adopt(there, here, name);
      options += fmt::format("{}--override {}", options.empty() ? "" : " ", row.name);
    }
  return difference(there, here).empty() ? options : "";
}

/// ", on 1 to 8 ranks".
std::string ranks_for(const TrainingFacts& facts) {
  const std::optional<int> shards = shards_in(facts);
  if (!shards) return {};
  return fmt::format(", on {}", ranks_that_can_share(*shards));
}

}  // namespace

std::string training_difference(const TrainingFacts& there, const TrainingFacts& here,
                                const std::vector<Resume::Override>& overrides) {
  TrainingFacts theirs = in_parts(there);
  for (const OverrideRow& row : override_rows())
    if (std::ranges::find(overrides, row.override) != overrides.end()) override_facts(theirs, here, row);
  const std::string differs = difference(theirs, here);
  if (differs.empty()) return {};
  if (const std::string options = helpful_overrides(theirs, here); !options.empty())
    return fmt::format("{}; {} goes on with the new values", differs, options);
  const std::string shards = value_in(theirs, "shards").value_or("none");
  const bool of_shards =
      differs == difference({{"shards", shards}}, {{"shards", value_in(here, "shards").value_or("none")}});
  return of_shards ? fmt::format("{}; expected --shards {}{}", differs, shards, ranks_for(theirs)) : differs;
}

}  // namespace lockstep
