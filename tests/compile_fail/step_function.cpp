// A step that takes the input as replica code would: it gets the PerReplica.
// expect: StepFunction
#include <lockstep/lockstep.hpp>

using namespace lockstep;

void program(StrategyExtended& extended, DistributedIterator<Tensor>& batches) {
#ifdef REFUSED
  const auto step = [](MultiStepContext&, const Tensor&) {};
#else
  const auto step = [](MultiStepContext&, const PerReplica<Tensor>&) {};
#endif
  (void)extended.run_steps_on_iterator(step, batches, 10);
}
