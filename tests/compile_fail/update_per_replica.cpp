// update() with a gradient that nobody has reduced.
// expect: SameOnEveryReplica
#include <lockstep/tf/extended/extended.hpp>
#include <lockstep/training.hpp>

using namespace lockstep;

void program(StrategyExtended& extended, const Variable& w, const PerReplica<Tensor>& gradient) {
  const Mirrored<Tensor> sum = extended.reduce_to(ReduceOp::sum, gradient, w);
#ifdef REFUSED
  const auto& argument = gradient;
#else
  const auto& argument = sum;
#endif
  extended.update(
      w, [](const Variable& v, const Tensor& delta) { v.assign_sub(delta); }, args(argument));
}
