#include "sync/optim/live_optimizers.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>

#include "core/base/site.hpp"
#include "sync/strategy/inside.hpp"

namespace lockstep {
namespace detail {
namespace {

/// "first moment"
std::string in_words(std::string_view slot) {
  std::string words{slot};
  std::ranges::replace(words, '_', ' ');
  return words;
}

}  // namespace

const std::shared_ptr<LiveOptimizers>& LiveOptimizers::of(VariableStore& store) {
  std::shared_ptr<LiveOptimizers>& all = inside(store).live_optimizers();
  if (!all) all = std::make_shared<LiveOptimizers>();
  return all;
}

std::string LiveOptimizers::name_for(const std::string& asked) const {
  if (!asked.empty()) return asked;
  int number = 0;
  while (sites_.contains(default_optimizer_name(number))) ++number;
  return default_optimizer_name(number);
}

void LiveOptimizers::enter(const std::string& name, const Call& call) {
  if (sites_.contains(name))
    throw InvalidArgument{fmt::format("{}optimizer '{}' needs another name: that of {}, is taken while it lives",
                                      call.text(), name, description_of(name))};
  sites_.emplace(name, call.here ? site_of(*call.here) : std::string{});
}

void LiveOptimizers::keep(const std::string& name, std::span<const Variable> variables,
                          std::span<const std::string_view> slots, const Call& call) {
  for (const std::string_view slot : slots) {
    const auto keepers = keepers_.find(slot);
    if (keepers == keepers_.end()) continue;
    for (const Variable& variable : variables)
      if (const auto other = keepers->second.find(&inside(variable).state());
          other != keepers->second.end() && other->second != name)
        throw InvalidArgument{fmt::format(
            "{0}optimizer '{1}' would change the {2} of variable {3}, which belongs to {4}; a variable has "
            "only one {2}, so let one optimizer update it, or destroy '{5}' first",
            call.text(), name, in_words(slot), variable.label(), description_of(other->second), other->second)};
  }
  for (const std::string_view slot : slots)
    for (const Variable& variable : variables) keepers_[std::string{slot}].emplace(&inside(variable).state(), name);
}

void LiveOptimizers::leave(const std::string& name) {
  sites_.erase(name);
  for (auto& [slot, keepers] : keepers_)
    std::erase_if(keepers, [&](const auto& keeper) { return keeper.second == name; });
}

std::string LiveOptimizers::description_of(const std::string& name) const {
  const std::string& site = sites_.at(name);
  return fmt::format("optimizer '{}'{}{}", name, site.empty() ? "" : ", first used at ", site);
}

}  // namespace detail

Optimizer::Places::~Places() {
  for (const Place& place : places_)
    if (const auto all = place.all.lock()) all->leave(place.name);
}

const Optimizer::Places::Place* Optimizer::Places::find(VariableStore& store) const {
  // Locked, because a new store may have the address of one that is gone.
  const auto is_of_store = [&](const Place& place) { return place.all.lock() == detail::LiveOptimizers::of(store); };
  const auto found = std::ranges::find_if(places_, is_of_store);
  return found == places_.end() ? nullptr : &*found;
}

void Optimizer::Places::enter(VariableStore& store, const detail::Call& call) {
  if (find(store)) return;
  const auto& all = detail::LiveOptimizers::of(store);
  std::erase_if(places_, [](const Place& place) { return place.all.expired(); });
  Place place{all, all->name_for(asked_)};
  places_.reserve(places_.size() + 1);  // so that nothing throws once the name is taken
  all->enter(place.name, call);
  places_.push_back(std::move(place));
}

std::string Optimizer::Places::name_in(VariableStore& store) const {
  const Place* const place = find(store);
  return place ? place->name : detail::LiveOptimizers::of(store)->name_for(asked_);
}

}  // namespace lockstep
