// From an audit's results that differ to the rank whose result is wrong. Pure: every rank reaches the same verdict.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <lockstep/core/base/error.hpp>

#include "core/control/verdict.hpp"

namespace lockstep {

/// What ranks say of one shard: digests of its samples and of all that follows from them, always of the same values.
struct AuditedShard {
  using Digests = std::vector<std::uint64_t>;

  std::int64_t shard;          ///< of the batch
  int owner, auditor;          ///< the same if there is one rank
  Digests of_owner;            ///< in the step
  Digests of_auditor;          ///< in the step; differs from the owner's
  std::vector<Digests> again;  ///< of every rank, computed once more after the step; empty if it could not do that
};

/// Who is wrong about `shards`, at least one, in `step` (from 1). `values` names what the digests are of; those of
/// the samples are called "samples". `replicas[r]` is "replica r (task, host h)".
///
/// What more than half of the ranks get that can compute the shard once more is right. Then those are to blame who had,
/// or get, something else. Without such a majority, owner or auditor is to blame if it does not get its own result
/// again. If both do, nobody can tell. The verdict's exception is an AuditError. Its words begin with the first replica
/// that is to blame, and describe what is wrong with the first shard of which that is known.
Verdict judge_audit(std::int64_t step, std::span<const std::string> values, std::span<const AuditedShard> shards,
                    std::span<const std::string> replicas);

/// The same for a `step` that did not pass although the ranks have the same results: what was wrong is the sum in which
/// their digests travelled. Blames nobody. The finding's value is "sum of digests", of no shard.
Verdict judge_sum(std::int64_t step);

}  // namespace lockstep
