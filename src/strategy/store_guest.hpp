// What the store knows of a library that keeps values of variables elsewhere.
#pragma once

#include <vector>

#include <lockstep/strategy/variable_store.hpp>

namespace lockstep::detail {

/// A library that keeps values of variables, or optimizer state, in memory of its own, such as LibTorch. Whoever uses
/// them asks it before and tells it afterwards. Every method is LOCAL, and may throw an Error if the library has made
/// of them what the store cannot hold.
class StoreGuest {
 public:
  virtual ~StoreGuest() = default;

  /// Before values are read or written: those that the library has moved lie in the store's memory again.
  virtual void bring_values_home() = 0;

  /// Before optimizer state is read or written: `state` shows it as it is now.
  virtual void bring_state_home() = 0;

  /// Optimizer state beside the store's own. The views are valid until the next `bring_state_home`.
  virtual std::vector<VariableStore::OptimizerState> state() = 0;

  /// After values or state were written: the library goes on with them.
  virtual void take_over() = 0;
};

}  // namespace lockstep::detail
