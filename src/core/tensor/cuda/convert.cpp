#include "core/tensor/cuda/convert.hpp"

#include "core/device/cuda/native.hpp"
#include "core/tensor/cuda/launch.hpp"

namespace lockstep::detail {
namespace {

template <class From, class To>
cudaError_t launch(const TensorView& from, const TensorView& to, Stream& stream) {
  return cuda::launch_convert(reinterpret_cast<const From*>(from.data()), reinterpret_cast<To*>(to.data()),
                              from.count(), native(stream));
}

}  // namespace

void cuda::convert(const TensorView& from, const TensorView& to, Stream& stream) {
  if (from.count() == 0) return;
  check_cuda(
      to.dtype() == DType::bf16 ? launch<float, BFloat16>(from, to, stream) : launch<BFloat16, float>(from, to, stream),
      "the launch of convert");
}

}  // namespace lockstep::detail
