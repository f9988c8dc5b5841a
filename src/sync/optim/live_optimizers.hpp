// The optimizers of one store that are alive: under which name each counts its steps, and which slots it keeps.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <lockstep/sync/optim/optimizer.hpp>

#include "sync/strategy/context_stack.hpp"
#include "sync/strategy/step_counter.hpp"

namespace lockstep {
namespace detail {

class LiveOptimizers {
 public:
  /// Those of `store`, which keeps them.
  static const std::shared_ptr<LiveOptimizers>& of(VariableStore& store);

  /// The name of an optimizer that asks for `asked`; if that is empty, the first free of "optimizer", "optimizer_1", …
  std::string name_for(const std::string& asked) const;

  /// Gives the name to an optimizer that `call` uses first. InvalidArgument if it is not free.
  void enter(const std::string& name, const Call& call);

  /// Notes that the optimizer `name` keeps these slots of each variable. InvalidArgument, which names both optimizers,
  /// if another one keeps one of them: then nothing is noted.
  void keep(const std::string& name, std::span<const Variable> variables, std::span<const std::string_view> slots,
            const Call& call);

  /// Frees the name and the slots.
  void leave(const std::string& name);

 private:
  /// "optimizer 'critic', first used at gan.cpp:31".
  std::string description_of(const std::string& name) const;

  using Keepers = std::map<const VariableState*, std::string>;  ///< names, by variables of the store, which stay
  std::map<std::string, std::string> sites_;                    ///< of the first use, by name
  std::map<std::string, Keepers, std::less<>> keepers_;         ///< by slot
};

}  // namespace detail

/// One optimizer's places among the live ones of each store that it has used. Stores and optimizers die in any order.
class Optimizer::Places {
 public:
  /// `asked` is the name that the optimizer asks for everywhere; empty if it asks for none.
  explicit Places(std::string asked) : asked_{std::move(asked)} {}
  Places(const Places&) = delete;
  ~Places();

  /// Fixes its name in `store` if `call` is its first use there. InvalidArgument if a live optimizer has it.
  void enter(VariableStore& store, const detail::Call& call);

  /// LiveOptimizers::keep, after `enter`.
  void keep(VariableStore& store, std::span<const Variable> variables, std::span<const std::string_view> slots,
            const detail::Call& call) {
    detail::LiveOptimizers::of(store)->keep(name_in(store), variables, slots, call);
  }

  /// Its name in `store`, or the one that it would get now.
  std::string name_in(VariableStore& store) const;

  /// The counter of its steps.
  std::string counter_in(VariableStore& store) const { return detail::step_counter(name_in(store)); }

 private:
  struct Place {
    std::weak_ptr<detail::LiveOptimizers> all;
    std::string name;
  };
  const Place* find(VariableStore& store) const;

  std::string asked_;
  std::vector<Place> places_;
};

}  // namespace lockstep
