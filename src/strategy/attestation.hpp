// Finding replicas that drifted: digests of what should be equal, and the sentence where it is not.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <lockstep/control/meeting_point.hpp>
#include <lockstep/strategy/drift.hpp>
#include <lockstep/strategy/variable_store.hpp>

namespace lockstep::detail {

/// What the replicas of a store hold alike, as digests: its sealed mirrored variables in the order of their creation,
/// the sync-on-read variables that are said to be `alike`, and the optimizers' state.
class Attestation {
 public:
  /// LOCAL. Waits for all work of the variables' device. ContextError for a variable that is not the store's or has no
  /// memory.
  Attestation(const VariableStore& store, std::span<const SyncOnReadVariable> alike);

  /// What is compared: "variable 'w', optimizer state 'w@momentum'". For the text of an agreement, so that ranks that
  /// compare other things than others are found before their digests are.
  std::string text() const;

  /// For an agreement in which this object is alive; with the same `text()` on every rank.
  Comparison comparison() const;

 private:
  void add(std::string name, const TensorView& value);
  Verdict diagnose(ControlChannel& channel, std::span<const std::string> replicas) const;

  std::vector<std::string> names_;
  std::vector<std::uint64_t> digests_;
};

/// Who differs, and in what: the first value on which the replicas do not agree. `values` are the names of all,
/// `digests` those of replica 0 for each, then of replica 1, …; `replicas[r]` is "replica r (task, host h)". At least
/// two replicas differ. To blame are those outside of the majority; where there is none, the sentence says who holds
/// what, and the verdict names replica 0. Its exception is a DriftError.
Verdict judge_drift(std::span<const std::string> values, std::span<const std::uint64_t> digests,
                    std::span<const std::string> replicas);

}  // namespace lockstep::detail
