// A second strategy on the first one's variables.
// expect: a copy would have an order of collectives of its own
#include <lockstep/training.hpp>

using namespace lockstep;

Strategy program(Strategy& strategy) {
#ifdef REFUSED
  return strategy;
#else
  return std::move(strategy);
#endif
}
