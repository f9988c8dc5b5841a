// What the store knows of a library that keeps values of variables elsewhere.
#pragma once

#include <vector>

#include <lockstep/sync/strategy/variable_store.hpp>

#include "sync/strategy/variable_state.hpp"

namespace lockstep::detail {

/// A library that keeps values of variables, or optimizer state, in memory of its own, such as LibTorch. Code that uses
/// them calls these methods before and after. Methods are LOCAL, and throw an Error if the store cannot hold them now.
class ExternalValues {
 public:
  virtual ~ExternalValues() = default;

  /// Call it before values are read or written. Moves values back into the store's memory.
  virtual void bring_values_home() = 0;

  /// Call it before optimizer state is read or written. Brings `state` up to date.
  virtual void bring_state_home() = 0;

  /// Optimizer state beside the store's own. The views are valid until the next `bring_state_home`.
  virtual std::vector<detail::OptimizerState> state() = 0;

  /// Call it after values or state were written. The library continues with them.
  virtual void take_over() = 0;
};

}  // namespace lockstep::detail
