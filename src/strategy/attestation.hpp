// Finding replicas that drifted: digests of what should be equal, and the sentence if it is not.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <lockstep/base/error.hpp>
#include <lockstep/strategy/variable_store.hpp>

#include "control/channel.hpp"
#include "control/meeting_point.hpp"
#include "control/verdict.hpp"

namespace lockstep::detail {

/// Digests of what the replicas of a store hold alike: its sealed mirrored variables in order of creation, the
/// sync-on-read variables in `alike`, and the optimizers' state, without that which no two ranks hold.
class Attestation {
 public:
  /// LOCAL, after VariableStore::bring_home. Waits for all work on the variables' device. ContextError for a variable
  /// that is not the store's or has no memory.
  Attestation(const VariableStore& store, std::span<const SyncOnReadVariable> alike, const Here& here);

  /// What is compared: "variable 'w', optimizer state 'w@momentum'". As the text of an agreement, it finds ranks that
  /// compare different things before their digests are compared.
  std::string text() const;

  /// For an agreement during which this object lives, with the same `text()` on every rank.
  Comparison comparison() const;

 private:
  void add(std::string name, const TensorView& value);
  Verdict diagnose(ControlChannel& channel, std::span<const std::string> replicas) const;

  std::vector<std::string> names_;
  std::vector<std::uint64_t> digests_;
};

/// Who differs, and in what: the first value on which the replicas do not agree. `values` names all values; `digests`
/// holds those of replica 0 for each, then those of replica 1, and so on; `replicas[r]` is "replica r (task, host h)".
/// At least two replicas must differ. Those outside the majority are to blame. Without a majority, the sentence says
/// who holds what, and the verdict names replica 0. Its exception is a DriftError.
Verdict judge_drift(std::span<const std::string> values, std::span<const std::uint64_t> digests,
                    std::span<const std::string> replicas);

}  // namespace lockstep::detail
