// A pointer, which means something else in every process.
// expect: ComparableAcrossRanks
#include <lockstep/training.hpp>

using namespace lockstep;

void program(Strategy& strategy, const double* rate) {
#ifdef REFUSED
  (void)strategy.same_on_all(rate);
#else
  (void)strategy.same_on_all(*rate);
#endif
}
