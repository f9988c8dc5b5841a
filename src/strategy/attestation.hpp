// Finding replicas that drifted: digests of what should be equal, and the sentence where it is not.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <lockstep/control/channel.hpp>
#include <lockstep/control/verdict.hpp>
#include <lockstep/strategy/variable_store.hpp>

namespace lockstep::detail {

/// The sealed mirrored variables of a store as digests, in the order of their creation.
class Attestation {
 public:
  /// LOCAL. Waits for all work of the variables' device.
  explicit Attestation(const VariableStore& store);

  /// For the tag of an agreement: the same on two ranks exactly when their variables are.
  std::string text() const;

  /// COLL. What the ranks' digests say, once an agreement has found that their texts differ.
  Verdict diagnose(ControlChannel& channel, std::span<const std::string> names) const;

 private:
  std::vector<std::string> labels_;
  std::vector<std::uint64_t> digests_;
};

/// Who differs, and in which variable: the first on which the replicas do not agree. `variables` are the labels of all,
/// `digests` those of replica 0 for each, then of replica 1, …; `names[r]` is "replica r (task, host h)". At least
/// two replicas differ. To blame are those outside of the majority; where there is none, the sentence says who holds
/// what, and the verdict names replica 0.
Verdict judge_drift(std::span<const std::string> variables, std::span<const std::uint64_t> digests,
                    std::span<const std::string> names);

}  // namespace lockstep::detail
