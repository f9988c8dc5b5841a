// Finding replicas that drifted: digests of what should be equal.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <lockstep/sync/strategy/variable_store.hpp>

#include "core/control/channel.hpp"
#include "core/control/drift.hpp"
#include "core/control/meeting_point.hpp"
#include "core/control/verdict.hpp"
#include "sync/strategy/first_steps.hpp"

namespace lockstep::detail {

/// Digests of what the replicas of a store hold alike: its sealed mirrored variables in order of creation, the
/// sync-on-read variables in `alike`, and the optimizers' state, without that which no two ranks hold.
class Attestation {
 public:
  /// LOCAL, after VariableStore::bring_home. Waits for all work on the variables' device. ContextError for a variable
  /// that is not the store's or has no memory.
  Attestation(VariableStore& store, std::span<const SyncOnReadVariable> alike, const Here& here);

  /// The sealed trainable variables alone. After VariableStore::bring_values_home.
  Attestation(VariableStore& store, const Here& here);

  /// At the end of `step`, one of the first: compares gradients that it was given too, and says how variables differ.
  void add(const FirstStepNotes& notes, std::uint64_t step);

  /// What is compared: "variable 'w', optimizer state 'w@momentum'". As the text of an agreement, it finds ranks that
  /// compare different things before their digests are compared.
  std::string text() const;

  /// For an agreement during which this object lives, with the same `text()` on every rank.
  Comparison comparison() const;

  /// Of the trainable variables alone, whatever else is compared.
  std::uint64_t digest_of_trained() const;

 private:
  void add(const Variable& variable, const Here& here);
  void add(std::string name, const TensorView& value);
  Verdict diagnose(ControlChannel& channel, std::span<const std::string> replicas) const;

  std::vector<ComparedValue> values_;
  std::vector<const VariableState*> trained_;  ///< of each value: the variable, if it is a trainable one, else null
  std::vector<std::uint64_t> digests_;
};

}  // namespace lockstep::detail
