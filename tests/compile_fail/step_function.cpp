// A step that takes the input as replica code would: it gets the PerReplica.
// expect: StepFunction
#include <lockstep/tf.hpp>

using namespace lockstep;

void program(Strategy& strategy, DistributedIterator<Tensor>& batches) {
#ifdef REFUSED
  const auto step = [](MultiStepContext&, const Tensor&) {};
#else
  const auto step = [](MultiStepContext&, const PerReplica<Tensor>&) {};
#endif
  (void)run_steps_on_iterator(strategy, step, batches, 10);
}
