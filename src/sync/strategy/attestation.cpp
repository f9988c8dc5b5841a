#include "sync/strategy/attestation.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "core/base/digest.hpp"
#include "core/control/drift.hpp"
#include "core/tensor/digest.hpp"
#include "sync/strategy/context_stack.hpp"
#include "sync/strategy/inside.hpp"

namespace lockstep::detail {
namespace {

bool is_sealed_mirrored(const VariableState& variable) {
  return variable.segment && variable.synchronization == Variable::Synchronization::on_write;
}

}  // namespace

Attestation::Attestation(VariableStore& store, std::span<const SyncOnReadVariable> alike, const Here& here) {
  for (const auto& variable : inside(store).variables())
    if (is_sealed_mirrored(*variable)) add(handle_of<MirroredVariable>(variable), here);
  for (const SyncOnReadVariable& variable : alike) {
    if (inside(variable).state().owner != &store)
      throw ContextError{
          fmt::format("{}variable {} is another strategy's", Call{"attest", here}.text(), variable.label())};
    add(variable, here);
  }
  for (const detail::OptimizerState& state : inside(store).optimizer_state())
    if (!state.holder && !state.in_slices) add(fmt::format("optimizer state '{}'", state.name), state.value);
}

Attestation::Attestation(VariableStore& store, const Here& here) {
  for (const auto& variable : inside(store).variables())
    if (is_sealed_mirrored(*variable) && variable->trainable) add(handle_of<MirroredVariable>(variable), here);
}

void Attestation::add(const Variable& variable, const Here& here) {
  add(fmt::format("variable {}", variable.label()), variable.for_reading(variable.dtype(), here));
  if (inside(variable).state().trainable) trained_.back() = &inside(variable).state();
}

void Attestation::add(std::string name, const TensorView& value) {
  values_.push_back({std::move(name)});
  trained_.push_back(nullptr);
  digests_.push_back(digest_of_elements(value));
}

void Attestation::add(const FirstStepNotes& notes, std::uint64_t step) {
  for (std::size_t i = 0; i < values_.size(); ++i) {
    ComparedValue& value = values_[i];
    value.when = fmt::format(" after step {}", step);
    if (!trained_[i]) continue;
    value.cause = std::ranges::find(notes.summed, trained_[i]) == notes.summed.end()
                      ? "most likely its gradient was not summed over the ranks, or ranks used different learning rates"
                      : "its gradient was summed over the ranks, so something else has changed it on a rank";
  }
  // In front: a variable that differs because of its gradient is not what went wrong.
  for (std::size_t i = 0; i < notes.given.size(); ++i) {
    const auto at = static_cast<std::ptrdiff_t>(i);
    values_.insert(values_.begin() + at,
                   {fmt::format("the gradient of {}", notes.given[i].name), fmt::format(" in step {}", step),
                    "it was not summed over the ranks before the step, or changed on a rank since then"});
    trained_.insert(trained_.begin() + at, nullptr);
    digests_.insert(digests_.begin() + at, notes.given[i].digest);
  }
}

std::string Attestation::text() const {
  std::string names;
  for (const ComparedValue& value : values_) names += (names.empty() ? "" : ", ") + value.name;
  return names;
}

std::uint64_t Attestation::digest_of_trained() const {
  std::vector<std::uint64_t> trained;
  for (std::size_t i = 0; i < digests_.size(); ++i)
    if (trained_[i]) trained.push_back(digests_[i]);
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

}  // namespace lockstep::detail
