// update() with what run() returns: each rank's own.
// expect: SameOnEveryReplica
#include <lockstep/tf/extended/extended.hpp>
#include <lockstep/training.hpp>

using namespace lockstep;

void program(Strategy& strategy, const Variable& w) {
  const auto loss = strategy.run([](ReplicaContext&) { return 0.5; });
#ifdef REFUSED
  const auto& argument = loss;
#else
  const auto argument = strategy.reduce(ReduceOp::mean, loss);
#endif
  StrategyExtended{strategy}.update(
      w, [](const Variable& v, double value) { v.assign(Tensor::scalar(value)); }, args(argument));
}
