#include "sync/reduce/cuda/arithmetic.hpp"

#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>

#include "core/device/cuda/native.hpp"
#include "sync/reduce/cuda/launch.hpp"
#include "sync/reduce/dispatch.hpp"

namespace lockstep::detail::cuda {
namespace {

template <class T>
T* elements(const TensorView& view) {
  if (view.device() != DeviceKind::cuda)
    throw InvalidArgument{fmt::format("{} is in the memory of the host, not of a cuda device", describe(view))};
  return reinterpret_cast<T*>(view.data());
}

}  // namespace

void tree_sum(const Pieces& pieces, int divisor, const TensorView& sum, Stream& stream) {
  if (sum.count() == 0) return;
  with_element_type(sum.dtype(), [&]<class T>() {
    check_cuda(launch_tree_sum(elements<const T>(pieces.first), pieces.stride, pieces.count, divisor, elements<T>(sum),
                               sum.count(), native(stream)),
               "the launch of a sum over parts");
  });
}

void add(const TensorView& sum, const TensorView& x, Stream& stream) {
  if (sum.count() == 0) return;
  with_element_type(sum.dtype(), [&]<class T>() {
    check_cuda(launch_add(elements<T>(sum), elements<const T>(x), sum.count(), native(stream)),
               "the launch of an addition");
  });
}

void divide(const TensorView& view, int divisor, Stream& stream) {
  if (view.count() == 0) return;
  with_element_type(view.dtype(), [&]<class T>() {
    check_cuda(launch_divide(elements<T>(view), divisor, view.count(), native(stream)), "the launch of a division");
  });
}

}  // namespace lockstep::detail::cuda
