// A read across replicas of a variable that is the same on all of them.
// expect: no member named 'read'
#include <lockstep/training.hpp>

using namespace lockstep;

Tensor program(Strategy& strategy, const std::function<Tensor()>& initial) {
#ifdef REFUSED
  const auto hits = strategy.create_variable({.name = "hits"}, initial);
#else
  const auto hits = strategy.create_sync_on_read({.name = "hits"}, initial);
#endif
  return hits.read();
}
