#include "sync/reduce/cuda/arithmetic.hpp"

#include <cstddef>
#include <cstdint>
#include <span>

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

Additions packed(std::span<const std::uint8_t> additions) {
  if (additions.size() > Additions::most_pieces)
    throw InvalidArgument{
        fmt::format("a sum over {} ranks with GPUs, whose shares of the shards differ; expected {} or "
                    "fewer, or a number that divides the shards",
                    additions.size(), Additions::most_pieces)};
  Additions packed;
  std::size_t bit = 0;
  for (const std::uint8_t count : additions) {
    for (int addition = 0; addition < count; ++addition, ++bit) packed.words[bit / 64] |= std::uint64_t{1} << bit % 64;
    ++bit;
  }
  return packed;
}

}  // namespace

void tree_sum(const Pieces& pieces, const SumRule& rule, const TensorView& sum, Stream& stream) {
  if (sum.count() == 0) return;
  with_element_type(sum.dtype(), [&]<class T>() {
    check_cuda(launch_tree_sum(elements<const T>(pieces.first), pieces.stride, pieces.count, packed(rule.additions),
                               rule.divisor, elements<T>(sum), sum.count(), native(stream)),
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
