// Creating variables where another one lives.
#pragma once

#include <lockstep/strategy/variable.hpp>

namespace lockstep {

class StrategyExtended;

/// While it lives, the variables that this thread creates live on the devices of another one, and belong to the same
/// strategy. Guards nest like blocks.
class Colocation {
 public:
  Colocation(const Colocation&) = delete;  // it ends where it stands
  Colocation& operator=(const Colocation&) = delete;
  ~Colocation();

 private:
  friend class StrategyExtended;
  explicit Colocation(const Variable& beside);
};

}  // namespace lockstep
