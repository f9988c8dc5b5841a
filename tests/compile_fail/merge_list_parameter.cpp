// A merge function that takes a list as one value of the replica: it gets a list of such values.
// expect: MergeFunctionFor
#include <lockstep/training.hpp>

using namespace lockstep;

void program(ReplicaContext& context, const std::vector<Tensor>& gradients) {
#ifdef REFUSED
  const auto merge = [](Strategy&, const PerReplica<std::vector<Tensor>>&) {};
#else
  const auto merge = [](Strategy&, const std::vector<PerReplica<Tensor>>&) {};
#endif
  context.merge_call(merge, args(gradients));
}
