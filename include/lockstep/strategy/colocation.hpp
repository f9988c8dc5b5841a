// Creating variables on the devices of another variable.
#pragma once

#include <lockstep/strategy/variable.hpp>

namespace lockstep {

class StrategyExtended;

/// While it lives, the variables that this thread creates live on the devices of another variable and must belong to
/// its strategy. Guards nest like blocks.
class Colocation {
 public:
  Colocation(const Colocation&) = delete;  // a guard ends with its block
  Colocation& operator=(const Colocation&) = delete;
  ~Colocation();

 private:
  friend class StrategyExtended;
  explicit Colocation(const Variable& beside);
};

}  // namespace lockstep
