// Another rank's component.
// expect: a process holds its own component only: local()
#include <lockstep/training.hpp>

using namespace lockstep;

double program(const PerReplica<double>& loss) {
#ifdef REFUSED
  return loss[1];
#else
  return loss.local();
#endif
}
