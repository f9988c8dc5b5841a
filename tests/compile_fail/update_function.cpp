// update() with a function that does not take what it is given.
// expect: UpdateFunctionFor
#include <lockstep/tf/extended/extended.hpp>
#include <lockstep/training.hpp>

using namespace lockstep;

void program(StrategyExtended& extended, const Variable& w, const Mirrored<Tensor>& sum) {
#ifdef REFUSED
  const auto set = [](const Variable& v, const Mirrored<Tensor>& value) { v.assign(value.value()); };
#else
  const auto set = [](const Variable& v, const Tensor& value) { v.assign(value); };
#endif
  extended.update(w, set, args(sum));
}
