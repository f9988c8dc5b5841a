// From digests of what the ranks should hold alike to one sentence that says whose differ. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "core/control/verdict.hpp"

namespace lockstep::detail {

/// What is compared, and what is known of it if the ranks differ.
struct ComparedValue {
  std::string name;        ///< "variable 'w'"
  std::string when = {};   ///< " after step 1"
  std::string cause = {};  ///< how they came to differ: "it was not summed over the ranks"
};

/// Who differs, and in what: the first value on which the replicas do not agree. `values` are all of them; `digests`
/// holds those of replica 0 for each, then those of replica 1, and so on; `replicas[r]` is "replica r (task, host h)".
/// At least two replicas must differ. Those outside the majority are to blame. Without a majority, the sentence says
/// who holds what, and the verdict names replica 0. Its exception is a DriftError.
Verdict judge_drift(std::span<const ComparedValue> values, std::span<const std::uint64_t> digests,
                    std::span<const std::string> replicas);

}  // namespace lockstep::detail
