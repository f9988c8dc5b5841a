#include "sync/strategy/audit_verdict.hpp"

#include <algorithm>
#include <optional>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/control/names.hpp"

namespace lockstep {
namespace {

using Digests = AuditedShard::Digests;

/// What more than half of the ranks get; null if they get too many different things.
const Digests* held_by_most(std::span<const Digests> of_ranks) {
  const auto computed = std::ssize(of_ranks) - std::ranges::count(of_ranks, Digests{});
  for (const Digests& each : of_ranks)
    if (!each.empty() && 2 * std::ranges::count(of_ranks, each) > computed) return &each;
  return nullptr;
}

/// The index of the first value that is not the same.
std::size_t first_difference(const Digests& a, const Digests& b) {
  return static_cast<std::size_t>(std::ranges::mismatch(a, b).in1 - a.begin());
}

/// What a rank had in the step; null if it did not compute the shard then.
const Digests* in_step(const AuditedShard& shard, int rank) {
  if (rank == shard.owner) return &shard.of_owner;
  return rank == shard.auditor ? &shard.of_auditor : nullptr;
}

const Digests& again(const AuditedShard& shard, int rank) {
  return shard.again[static_cast<std::size_t>(rank)];
}

/// A rank, and what is wrong with its result for a shard.
struct Wrong {
  int rank;
  std::size_t value;       ///< the first that is wrong
  std::vector<int> right;  ///< who gets something else, which is right; empty if only the rank itself does
  bool once = false;       ///< it was wrong in the step, and then right
};

/// Whether what a rank had, or has, is not `right`. A rank that could not compute the shard again has nothing.
bool differs_from(const Digests* digests, const Digests& right) {
  return digests && !digests->empty() && *digests != right;
}

std::vector<Wrong> judged(const AuditedShard& shard) {
  std::vector<Wrong> wrong;
  const auto ranks = static_cast<int>(shard.again.size());
  if (const Digests* const right = held_by_most(shard.again); right && ranks > 1) {
    std::vector<int> holders;
    for (int rank = 0; rank < ranks; ++rank) {
      const Digests* const before = in_step(shard, rank);
      const bool was_wrong = differs_from(before, *right), is_wrong = differs_from(&again(shard, rank), *right);
      if (was_wrong || is_wrong) {
        const Digests& its = was_wrong ? *before : again(shard, rank);
        wrong.push_back({rank, first_difference(its, *right), {}, was_wrong && again(shard, rank) == *right});
      } else if (again(shard, rank) == *right) {
        holders.push_back(rank);
      }
    }
    for (Wrong& each : wrong) each.right = holders;
    return wrong;
  }
  // Who does not repeat a result has computed one of two wrong.
  for (const int rank : std::set{shard.owner, shard.auditor}) {
    const Digests& now = again(shard, rank);
    for (const Digests* const before : {&shard.of_owner, &shard.of_auditor}) {
      const bool is_own = before == in_step(shard, rank) || shard.owner == shard.auditor;
      if (!is_own || now.empty() || now == *before) continue;
      wrong.push_back({rank, first_difference(*before, now), {}, false});
      break;
    }
  }
  return wrong;
}

/// "replicas 0, 2 and 3".
std::string listed(std::span<const int> replicas) {
  if (replicas.size() == 1) return fmt::format("replica {}", replicas.front());
  return fmt::format("replicas {} and {}", fmt::join(replicas.first(replicas.size() - 1), ", "), replicas.back());
}

/// "gradient of 'w' differs", "samples differ".
std::string differs(const std::string& value) {
  return fmt::format("{} {}", value, value == "samples" || value == "statistics" ? "differ" : "differs");
}

/// "replica 1 (worker:1, host b) computed shard 5 of step 120 wrong: gradient of 'w' differs from replicas 0 and 2".
std::string sentence_of(const Wrong& wrong, std::int64_t step, std::int64_t shard, std::span<const std::string> values,
                        std::span<const std::string> replicas) {
  const std::string& who = replicas[static_cast<std::size_t>(wrong.rank)];
  if (wrong.right.empty())
    return fmt::format("{} computed shard {} of step {} twice, with different results: {}", who, shard, step,
                       differs(values[wrong.value]));
  const std::string others = listed(wrong.right);
  if (values[wrong.value] == "samples")
    return fmt::format("{} read other samples than {} for shard {} of step {}{}", who, others, shard, step,
                       wrong.once ? "; when it read them again, they were the same" : "");
  return fmt::format("{} computed shard {} of step {} wrong: {} from {}{}", who, shard, step,
                     differs(values[wrong.value]), others, wrong.once ? "; computed again, it was right" : "");
}

}  // namespace

Verdict judge_audit(std::int64_t step, std::span<const std::string> values, std::span<const AuditedShard> shards,
                    std::span<const std::string> replicas) {
  std::set<int> blamed;
  std::optional<Wrong> first;
  const AuditedShard* of_first = &shards.front();
  for (const AuditedShard& shard : shards) {
    for (Wrong& wrong : judged(shard)) {
      blamed.insert(wrong.rank);
      if (first) continue;
      first = std::move(wrong);
      of_first = &shard;
    }
  }
  AuditError::Finding finding{
      .step = step, .shard = of_first->shard, .value = {}, .blamed = {blamed.begin(), blamed.end()}};
  std::string sentence;
  if (first) {
    finding.value = values[first->value];
    sentence = sentence_of(*first, step, of_first->shard, values, replicas);
    std::vector<int> others = finding.blamed;
    std::erase(others, first->rank);
    if (!others.empty())
      sentence += fmt::format("; {} {} wrong in this step too", listed(others), others.size() == 1 ? "was" : "were");
  } else {
    finding.value = values[first_difference(of_first->of_owner, of_first->of_auditor)];
    const std::vector both{std::min(of_first->owner, of_first->auditor), std::max(of_first->owner, of_first->auditor)};
    sentence = fmt::format(
        "{} have different results for shard {} of step {}, and get them again: {}; {}",
        detail::named_by_first(both, replicas), of_first->shard, step, differs(finding.value),
        replicas.size() == 2 ? "of two, nobody can tell which one is wrong" : "no result is that of most replicas");
  }
  const int rank = first ? first->rank : std::min(of_first->owner, of_first->auditor);
  const auto exception = std::make_exception_ptr(AuditError{sentence, std::move(finding)});
  return {rank, Error::ExitCode::miscomputed, false, std::move(sentence), exception};
}

Verdict judge_sum(std::int64_t step) {
  const std::string sentence = fmt::format(
      "step {} does not pass its audit, but all replicas have the same results: the sum of their digests is wrong, by "
      "a fault on its way, or by a ReductionOptions::accumulate that does not add",
      step);
  const AuditError::Finding finding{.step = step, .shard = 0, .value = "sum of digests", .blamed = {}};
  return {0, Error::ExitCode::miscomputed, false, sentence, std::make_exception_ptr(AuditError{sentence, finding})};
}

}  // namespace lockstep
