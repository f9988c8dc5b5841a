// A plain value that the program calls mirrored.
// expect: same_on_all proves that a value is the same
#include <lockstep/training.hpp>

using namespace lockstep;

Mirrored<double> program(Strategy& strategy, double rate) {
#ifdef REFUSED
  return Mirrored<double>{rate};
#else
  return strategy.same_on_all(rate);
#endif
}
