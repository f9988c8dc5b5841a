// A list of pointers.
// expect: ComparableAcrossRanks
#include <lockstep/training.hpp>

using namespace lockstep;

void program(Strategy& strategy, const std::vector<const char*>& names) {
#ifdef REFUSED
  (void)strategy.same_on_all(std::vector<const void*>(names.begin(), names.end()));
#else
  (void)strategy.same_on_all(std::vector<std::string>(names.begin(), names.end()));
#endif
}
