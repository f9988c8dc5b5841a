#include "apps/lockstep-bisect/difference.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <utility>

#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>

#include "models/record/run_folder.hpp"

namespace lockstep::bisect {
namespace {

/// By step, those about checkpoints after those about the step itself.
using Entries = std::map<std::pair<std::int64_t, bool>, Ledger::Entry>;

Entries entries_of(const Ledger& ledger) {
  Entries entries;
  for (const Ledger::Entry& each : ledger.entries) entries[{each.step, each.weights.has_value()}] = each;
  return entries;
}

/// What differs in one step; empty if nothing does.
std::string difference_in_step(const StepDigests& one, const StepDigests& other) {
  const std::size_t values = one.values.size();
  if (one.values != other.values || one.of_shards.size() != other.of_shards.size())
    return "models or numbers of shards differ";
  // Samples come first, whichever shard they are of.
  for (const bool samples : {true, false}) {
    for (std::size_t at = 0; at < one.of_shards.size(); ++at)
      if ((at % values == 0) == samples && one.of_shards[at] != other.of_shards[at])
        return fmt::format("{} of shard {}", one.values[at % values], at / values);
  }
  if (std::isfinite(one.loss) != std::isfinite(other.loss) || (std::isfinite(one.loss) && one.loss != other.loss))
    return "the sum of the losses";
  if (one.weights && other.weights && *one.weights != *other.weights) return "the weights after it";
  return {};
}

}  // namespace

std::optional<Interval> first_difference(const Ledger& one, const Ledger& other) {
  const Entries ones = entries_of(one), others = entries_of(other);
  Interval interval;
  bool any = false;
  for (const auto& [place, entry] : ones) {
    const auto found = others.find(place);
    if (found == others.end()) continue;
    any = true;
    if (entry != found->second) {
      // Weights that differ after a step follow from that step, so what the step yielded itself says nothing of it.
      interval.differs = place.first;
      return interval;
    }
    if (place.second || !ones.contains({place.first, true}) || !others.contains({place.first, true}))
      interval.same = place.first;
  }
  if (!any) throw ConfigError{"the ledgers have no step in common; expected runs with the same --ledger"};
  return std::nullopt;
}

std::string first_difference(const std::vector<StepDigests>& one, const std::vector<StepDigests>& other) {
  const auto less = [](const StepDigests& step, std::int64_t number) { return step.step < number; };
  for (const StepDigests& each : one) {
    const auto same = std::lower_bound(other.begin(), other.end(), each.step, less);
    if (same == other.end() || same->step != each.step) continue;
    if (const std::string what = difference_in_step(each, *same); !what.empty())
      return fmt::format("step {}: {}", each.step, what);
  }
  return {};
}

std::optional<StepDigests> digests_of(const RecordedRun& run, std::int64_t step) {
  const auto is_it = [&](const Ledger::Entry& entry) { return entry.step == step && !entry.weights; };
  const auto entry = std::ranges::find_if(run.ledger.entries, is_it);
  if (entry == run.ledger.entries.end()) return std::nullopt;
  const std::filesystem::path shards = RunLayout{run.folder}.ledger_of_shards();
  std::vector<std::string> values = Ledger::values_in(shards);
  std::vector<std::uint64_t> digests = Ledger::shards_of(shards, *entry, values.size());
  constexpr double not_finite = std::numeric_limits<double>::quiet_NaN();
  return StepDigests{step, entry->loss.value_or(not_finite), std::move(values), std::move(digests)};
}

}  // namespace lockstep::bisect
