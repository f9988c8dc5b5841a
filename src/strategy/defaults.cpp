#include "strategy/defaults.hpp"

namespace lockstep::detail {

Defaults& Defaults::of_thread() {
  thread_local Defaults defaults;
  return defaults;
}

bool is_default(const Strategy& strategy) {
  return &strategy == &Defaults::of_thread().strategy;
}
bool is_default(const ReplicaContext& context) {
  return &context == &Defaults::of_thread().context;
}

}  // namespace lockstep::detail
