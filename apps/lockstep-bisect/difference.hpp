// Where two runs begin to differ.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "apps/lockstep-train/verification.hpp"

namespace lockstep::bisect {

/// Between which steps two ledgers begin to differ: they agree up to `same`, as far as they say, and not in `differs`:
/// 0 for the weights that the runs begin with.
struct Interval {
  std::int64_t same = 0;
  std::int64_t differs = 0;
};

/// By the entries that both have. Empty if these are equal. ConfigError if they have none in common.
std::optional<Interval> first_difference(const Ledger& one, const Ledger& other);

/// "step 6: gradient of 'dense_1/bias' of shard 5", of the first of the steps, which both have, in which they differ.
/// Empty if they are equal. Where samples differ, that is said first.
std::string first_difference(const std::vector<StepDigests>& one, const std::vector<StepDigests>& other);

/// What the folder of a run has of a step. Empty if its ledger has no entry for it. CheckpointError if the digests of
/// its shards are not as they were written.
std::optional<StepDigests> digests_of(const RecordedRun& run, std::int64_t step);

}  // namespace lockstep::bisect
