// A struct with bytes between its members, which nobody sets.
// expect: ComparableAcrossRanks
#include <lockstep/training.hpp>

using namespace lockstep;

struct Padded {
  char kind;
  int number;
};

void program(Strategy& strategy) {
#ifdef REFUSED
  (void)strategy.same_on_all(Padded{1, 2});
#else
  (void)strategy.same_on_all(std::tuple{char{1}, 2});
#endif
}
