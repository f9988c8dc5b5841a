// A loop of steps over a list, which every rank would come to the end of by itself.
// expect: DistributedInput
#include <lockstep/tf.hpp>

using namespace lockstep;

#ifdef REFUSED
using Batches = std::vector<Tensor>;
#else
using Batches = DistributedIterator<Tensor>;
#endif

void program(Strategy& strategy, Batches& batches) {
  (void)run_steps_on_iterator(
      strategy, [](MultiStepContext&, const auto&) {}, batches, 10);
}
