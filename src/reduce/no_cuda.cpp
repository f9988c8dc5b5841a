// Reductions on GPU memory, in a build without a GPU backend.
#include <lockstep/base/error.hpp>

#include "reduce/cuda/arithmetic.hpp"

namespace lockstep::detail::cuda {
namespace {

[[noreturn]] void refuse() {
  throw DeviceError{"this build has no GPU backend"};
}

}  // namespace

void tree_sum(const Pieces&, int, const TensorView&, Stream&) {
  refuse();
}
void add(const TensorView&, const TensorView&, Stream&) {
  refuse();
}
void divide(const TensorView&, int, Stream&) {
  refuse();
}

}  // namespace lockstep::detail::cuda
