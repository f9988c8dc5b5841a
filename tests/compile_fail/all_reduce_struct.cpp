// A reduction of a struct whose members the library does not know.
// expect: Reducible
// expect: float, double, int32_t, int64_t, uint8_t, Tensor; nests; structs with a Nest
#include <lockstep/training.hpp>

using namespace lockstep;

struct Unnamed {
  double loss;
};
struct Named {
  double loss;
};
template <>
struct lockstep::Nest<Named> {
  static constexpr auto members = std::tuple{&Named::loss};
};

void program(ReplicaContext& context) {
#ifdef REFUSED
  (void)context.all_reduce(ReduceOp::sum, Unnamed{1});
#else
  (void)context.all_reduce(ReduceOp::sum, Named{1});
#endif
}
