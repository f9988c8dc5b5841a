#include "sync/strategy/attestation.hpp"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <lockstep/core/base/hex.hpp>

#include "core/base/digest.hpp"
#include "core/control/names.hpp"
#include "core/tensor/digest.hpp"
#include "sync/strategy/context_stack.hpp"
#include "sync/strategy/inside.hpp"

namespace lockstep::detail {
namespace {

/// Replicas that hold the same digest, ascending.
struct Holders {
  std::uint64_t digest;
  std::vector<int> replicas;
};

/// Ordered by their lowest replica.
std::vector<Holders> holders_of(const DriftError::Value& value) {
  std::vector<Holders> all;
  for (std::size_t replica = 0; replica < value.digests.size(); ++replica) {
    const std::uint64_t digest = value.digests[replica];
    auto same = std::find_if(all.begin(), all.end(), [&](const Holders& each) { return each.digest == digest; });
    if (same == all.end()) same = all.insert(same, {digest, {}});
    same->replicas.push_back(static_cast<int>(replica));
  }
  return all;
}

/// The replicas outside the majority, ascending; empty if there is no majority.
std::vector<int> outside_of_majority(std::span<const Holders> holders, std::size_t replicas) {
  const auto majority = std::find_if(holders.begin(), holders.end(),
                                     [&](const Holders& each) { return 2 * each.replicas.size() > replicas; });
  std::vector<int> outside;
  if (majority == holders.end()) return outside;
  for (auto each = holders.begin(); each != holders.end(); ++each)
    if (each != majority) outside.insert(outside.end(), each->replicas.begin(), each->replicas.end());
  std::sort(outside.begin(), outside.end());
  return outside;
}

/// With the first value that differs, which `first` gets.
DriftError::Drift drift_of(std::span<const AttestedValue> values, std::span<const std::uint64_t> digests,
                           const AttestedValue*& first_value) {
  DriftError::Drift drift;
  for (std::size_t index = 0; index < values.size(); ++index) {
    DriftError::Value value{values[index].name, {}};
    for (std::size_t at = index; at < digests.size(); at += values.size()) value.digests.push_back(digests[at]);
    if (holders_of(value).size() == 1) continue;
    if (drift.values.empty()) first_value = &values[index];
    drift.values.push_back(std::move(value));
  }
  const DriftError::Value& first = drift.values.front();
  drift.blamed = outside_of_majority(holders_of(first), first.digests.size());
  return drift;
}

/// "replica 0 (chief:0, host a) holds digest … of variable 'w', replica 1 (worker:0, host b) digest …: …"
std::string who_holds_what(std::span<const Holders> holders, std::string_view what,
                           std::span<const std::string> replicas) {
  std::string text;
  for (const Holders& each : holders) {
    const std::string who = named_by_first(each.replicas, replicas);
    text += text.empty() ? fmt::format("{} {} digest {} of {}", who, each.replicas.size() == 1 ? "holds" : "hold",
                                       to_hex(each.digest), what)
                         : fmt::format(", {} digest {}", who, to_hex(each.digest));
  }
  return text + ": no majority can be told";
}

std::string sentence_of(const DriftError::Drift& drift, const AttestedValue& first,
                        std::span<const std::string> replicas) {
  std::string what = first.name + first.when;
  if (drift.values.size() > 1) what += fmt::format(", the first of {} that differ", drift.values.size());
  if (drift.blamed.empty())
    return who_holds_what(holders_of(drift.values.front()), what, replicas) +
           (first.cause.empty() ? "" : "; " + first.cause);
  return fmt::format("{} {} from the others in {}{}", named_by_first(drift.blamed, replicas),
                     drift.blamed.size() == 1 ? "differs" : "differ", what,
                     first.cause.empty() ? "" : ": " + first.cause);
}

bool is_sealed_mirrored(const VariableState& variable) {
  return variable.segment && variable.synchronization == Variable::Synchronization::on_write;
}

}  // namespace

Attestation::Attestation(const VariableStore& store, std::span<const SyncOnReadVariable> alike, const Here& here) {
  for (const auto& variable : store.variables())
    if (is_sealed_mirrored(*variable)) add(handle_of<MirroredVariable>(variable), here);
  for (const SyncOnReadVariable& variable : alike) {
    if (inside(variable).state().owner != &store)
      throw ContextError{
          fmt::format("{}variable {} is another strategy's", Call{"attest", here}.text(), variable.label())};
    add(variable, here);
  }
  for (const VariableStore::OptimizerState& state : store.optimizer_state())
    if (!state.holder && !state.in_slices) add(fmt::format("optimizer state '{}'", state.name), state.value);
}

Attestation::Attestation(const VariableStore& store, const Here& here) {
  for (const auto& variable : store.variables())
    if (is_sealed_mirrored(*variable) && variable->trainable) add(handle_of<MirroredVariable>(variable), here);
}

void Attestation::add(const Variable& variable, const Here& here) {
  add(fmt::format("variable {}", variable.label()), variable.for_reading(variable.dtype(), here));
  if (inside(variable).state().trainable) values_.back().trained = &inside(variable).state();
}

void Attestation::add(std::string name, const TensorView& value) {
  values_.push_back({std::move(name)});
  digests_.push_back(digest_of_elements(value));
}

void Attestation::add(const FirstStepNotes& notes, std::uint64_t step) {
  for (AttestedValue& value : values_) {
    value.when = fmt::format(" after step {}", step);
    if (!value.trained) continue;
    value.cause = std::ranges::find(notes.summed, value.trained) == notes.summed.end()
                      ? "most likely its gradient was not summed over the ranks, or ranks used different learning rates"
                      : "its gradient was summed over the ranks, so something else has changed it on a rank";
  }
  // In front: a variable that differs because of its gradient is not what went wrong.
  for (std::size_t i = 0; i < notes.given.size(); ++i) {
    const auto at = static_cast<std::ptrdiff_t>(i);
    values_.insert(values_.begin() + at,
                   {fmt::format("the gradient of {}", notes.given[i].name), fmt::format(" in step {}", step),
                    "it was not summed over the ranks before the step, or changed on a rank since then"});
    digests_.insert(digests_.begin() + at, notes.given[i].digest);
  }
}

std::string Attestation::text() const {
  std::string names;
  for (const AttestedValue& value : values_) names += (names.empty() ? "" : ", ") + value.name;
  return names;
}

std::uint64_t Attestation::digest_of_trained() const {
  std::vector<std::uint64_t> trained;
  for (std::size_t i = 0; i < digests_.size(); ++i)
    if (values_[i].trained) trained.push_back(digests_[i]);
  return digest_of(std::as_bytes(std::span{trained}));
}

Comparison Attestation::comparison() const {
  return {
      digest_of(std::as_bytes(std::span{digests_})) | 1,
      [this](ControlChannel& channel, std::span<const std::string> replicas) { return diagnose(channel, replicas); }};
}

Verdict Attestation::diagnose(ControlChannel& channel, std::span<const std::string> replicas) const {
  std::vector<std::uint64_t> all(digests_.size() * static_cast<std::size_t>(channel.size()));
  channel.all_gather(std::as_bytes(std::span{digests_}), std::as_writable_bytes(std::span{all}));
  return judge_drift(values_, all, replicas);
}

Verdict judge_drift(std::span<const AttestedValue> values, std::span<const std::uint64_t> digests,
                    std::span<const std::string> replicas) {
  const AttestedValue* first = nullptr;
  DriftError::Drift drift = drift_of(values, digests, first);
  const int rank = drift.blamed.empty() ? 0 : drift.blamed.front();
  std::string sentence = sentence_of(drift, *first, replicas);
  const auto exception = std::make_exception_ptr(DriftError{sentence, std::move(drift)});
  return {rank, Error::ExitCode::replicas_differ, false, std::move(sentence), exception};
}

}  // namespace lockstep::detail
