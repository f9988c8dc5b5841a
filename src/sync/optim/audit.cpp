#include "sync/optim/audit.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <lockstep/core/base/error.hpp>
#include <lockstep/core/base/hex.hpp>

#include "core/base/digest.hpp"
#include "core/control/meeting_point.hpp"
#include "core/tensor/digest.hpp"
#include "sync/group/replica_group.hpp"
#include "sync/optim/plan.hpp"
#include "sync/strategy/inside.hpp"

namespace lockstep {
namespace {

/// InvalidArgument if shares can have no such number of shards.
int checked(std::int64_t shards) {
  if (shards < 1 || shards > std::numeric_limits<int>::max())
    throw InvalidArgument{fmt::format("audits of {} shards; expected 1 or more", shards)};
  return static_cast<int>(shards);
}

}  // namespace

void Optimizer::Audit::Results::add(std::string_view name, const TensorView& values) {
  kept_.names.emplace_back(name);
  if (kept_.digests_wanted) kept_.digests.push_back(detail::digest_of_elements(values));
}

void Optimizer::Audit::Results::add(std::string_view name, double value) {
  kept_.names.emplace_back(name);
  if (!kept_.digests_wanted) return;
  kept_.digests.push_back(digest_of_number(value));
  kept_.is_finite &= std::isfinite(value);
}

Optimizer::Audit::Audit(Strategy& strategy, const Options& options, Compute compute)
    : impl_{std::make_unique<Impl>(strategy, options, std::move(compute))} {}

Optimizer::Audit::~Audit() = default;

void Optimizer::Audit::compute(std::int64_t shard) {
  impl_->compute_own(shard);
}

Optimizer::Audit::Impl::Impl(Strategy& strategy, const Options& options, Compute compute)
    : strategy_{strategy},
      options_{options},
      compute_{std::move(compute)},
      rank_{strategy.rank()},
      ranks_{strategy.num_replicas_in_sync()},
      shares_{checked(options.shards), ranks_},
      step_{options.first_step} {
  if (options.every < 1)
    throw InvalidArgument{fmt::format("audits of every {} steps; expected 1 or more", options.every)};
  if (options.first_step < 0)
    throw InvalidArgument{fmt::format("audits from step {} on; expected 0 or more", options.first_step)};
  begin_step();
}

void Optimizer::Audit::Impl::begin_step() {
  round_.reset();
  own_.reset();
  names_.clear();
  const auto turn = AuditSchedule{options_.every, options_.seed, ranks_, shares_.largest()}.in(step_);
  if (turn) round_.emplace(inside(strategy_).group(), step_, shares_, *turn);
}

AuditRound::Digests Optimizer::Audit::Impl::compute(std::int64_t shard, bool digests_wanted) {
  Results::Kept kept{.digests_wanted = digests_wanted};
  Results results{kept};
  compute_(shard, results);
  if (names_.empty()) names_ = kept.names;
  if (kept.names.empty() || kept.names != names_)
    throw InvalidArgument{
        fmt::format("shard {} has the results [{}], and another one [{}]; expected the same, and one at least", shard,
                    fmt::join(kept.names, ", "), fmt::join(names_, ", "))};
  if (!kept.is_finite) say_only_not_finite(kept.digests);
  return std::move(kept.digests);
}

void Optimizer::Audit::Impl::compute_own(std::int64_t shard) {
  const Range own = shares_.of(rank_);
  if (shard < own.first || shard >= own.last)
    throw InvalidArgument{fmt::format("an audit was to compute shard {} on replica {}; expected {} to {}", shard, rank_,
                                      own.first, own.last - 1)};
  const bool is_audited = round_ && shard == round_->own();
  AuditRound::Digests digests = compute(shard, is_audited);
  if (is_audited) own_ = std::move(digests);
}

void Optimizer::Audit::Impl::compute_other() {
  if (!round_) return;
  if (!own_)
    throw InvalidArgument{fmt::format(
        "an audited step without shard {}: expected Audit::compute for each shard of the rank before", round_->own())};
  round_->bring(*own_, compute(round_->other()));
  // Results of other names are other results. Unsigned, since these sums wrap around.
  const auto add = [&](std::int64_t shard, std::uint64_t number) {
    std::int64_t& sum = integers()[static_cast<std::size_t>(shares_.owner_of(shard))];
    sum = static_cast<std::int64_t>(static_cast<std::uint64_t>(sum) + number);
  };
  add(round_->own(), digest_of_names());
  add(round_->other(), -digest_of_names());
}

std::uint64_t Optimizer::Audit::Impl::digest_of_names() const {
  return digest_of(fmt::format("{}", fmt::join(names_, ", ")));
}

std::string Optimizer::Audit::Impl::text() const {
  if (!round_) return {};
  return fmt::format(
      ", audit of step {} (every {}, seed {}) of {} shards{}", step_ + 1, options_.every, options_.seed,
      options_.shards,
      names_.empty() ? "" : fmt::format(", {} results (digest {})", names_.size(), to_hex(digest_of_names())));
}

void Optimizer::Audit::Impl::end_step(ReplicaContext& context, const Here& here) {
  if (passes()) {
    ++step_;
    return begin_step();
  }
  try {
    // Ranks with other weights get other gradients, and all of them are right.
    context.merge_call([&](Strategy& strategy) { strategy.attest({}, here); }, {}, here);
    const auto names = static_cast<std::int64_t>(digest_of_names());
    const std::vector<std::int64_t> all = inside(strategy_).group().meeting().gather({&names, 1});
    if (std::ranges::count(all, names) < ranks_)
      throw MismatchError{fmt::format("{}the ranks' shards have results of other names; here [{}]",
                                      detail::Call{detail::apply_call, here}.text(), fmt::join(names_, ", "))};
    round_->judge(
        names_, [&](std::int64_t shard) { return compute(shard); }, here);
  } catch (...) {
    begin_step();  // the same once more, if the program goes on
    throw;
  }
}

}  // namespace lockstep
