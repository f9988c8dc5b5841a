#include <lockstep/core/base/error.hpp>

#include "apps/bench-torch/reducer.hpp"

namespace lockstep::bench_torch {

bool has_reducer() {
  return false;
}

std::unique_ptr<Reducer> make_reducer(const ReplicaParameters&, ReducerKind) {
  throw ConfigError{"this build has no c10d::Reducer: expected Debian's LibTorch and gloo's headers (libgloo-dev)"};
}

}  // namespace lockstep::bench_torch
