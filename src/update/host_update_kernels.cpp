// The reference kernels of optimizers.
#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>
#include <vector>

#include "base/wide_loop.hpp"
#include "ops/checks.hpp"
#include "ops/reference/loops.hpp"
#include "ops/reference/reference.hpp"
#include "ops/reference/typed.hpp"
#include "ops/square_blocks.hpp"
#include "ops/update_scalars.hpp"
#include "ops/with_type.hpp"

namespace lockstep::ops {
namespace {

constexpr std::int64_t strip = 16;
static_assert(square_lanes % strip == 0);

/// The sum of the squares of at most square_block elements.
template <class T>
double block_sum(const T* x, std::int64_t count) {
  std::array<double, square_lanes> sums{};
  if (count == square_block) {
    // Strip by strip, whose sums stay in registers.
    for (std::int64_t first = 0; first < square_lanes; first += strip) {
      std::array<double, strip> of_strip{};
      for (std::int64_t row = first; row < square_block; row += square_lanes)
        loops::add_squares(of_strip.data(), x + row, strip);
      std::ranges::copy(of_strip, sums.data() + first);
    }
  } else {
    for (std::int64_t first = 0; first < count; first += square_lanes)
      loops::add_squares(sums.data(), x + first, std::min(square_lanes, count - first));
  }
  for (std::int64_t width = square_lanes / 2; width > 0; width /= 2)
    loops::add(sums.data(), sums.data() + width, width);
  return sums[0];
}

/// The sums of all blocks of `part`, from `sums` on.
void block_sums(const TensorView& part, double* sums) {
  with_type(part.dtype(), [&]<class T>() {
    wide_loop([&] {
      for (std::int64_t first = 0; first < part.count(); first += square_block)
        *sums++ = block_sum(data<T>(part) + first, std::min(square_block, part.count() - first));
    });
  });
}

}  // namespace

/// In the tree of fixed_order_sum: neighbours, then neighbouring pairs, and so on.
double UpdateKernels::sum_of_blocks(std::vector<double> sums) {
  for (std::size_t distance = 1; distance < sums.size(); distance *= 2)
    for (std::size_t i = 0; i + distance < sums.size(); i += 2 * distance) sums[i] += sums[i + distance];
  return sums.empty() ? 0 : sums.front();
}

void ReferenceKernels::sgd(const TensorView& values, const TensorView& gradient, const UpdateStep& step) const {
  check_update(DeviceKind::cpu, "sgd", {&values, &gradient}, step);
  with_type(values.dtype(),
            [&]<class T>() { loops::sgd(data<T>(values), data<T>(gradient), scalars_of<T>(step), values.count()); });
}

void ReferenceKernels::momentum(const TensorView& values, const TensorView& gradient, const TensorView& velocity,
                                const UpdateStep& step, double momentum) const {
  check_update(DeviceKind::cpu, "momentum", {&values, &gradient, &velocity}, step);
  check_fraction("momentum", "momentum", momentum);
  with_type(values.dtype(), [&]<class T>() {
    loops::momentum(data<T>(values), data<T>(gradient), data<T>(velocity), scalars_of<T>(step),
                    static_cast<T>(momentum), values.count());
  });
}

void ReferenceKernels::adamw(const TensorView& values, const TensorView& gradient, const TensorView& first,
                             const TensorView& second, const UpdateStep& step, const AdamWMoments& moments) const {
  check_update(DeviceKind::cpu, "adamw", {&values, &gradient, &first, &second}, step);
  check_moments("adamw", moments);
  with_type(values.dtype(), [&]<class T>() {
    loops::adamw(data<T>(values), data<T>(gradient), data<T>(first), data<T>(second), scalars_of<T>(step),
                 scalars_of<T>(moments, step, functions_), values.count());
  });
}

Answer<double> ReferenceKernels::start_sum_of_squares(std::span<const TensorView> parts) const {
  check_floats(DeviceKind::cpu, "sum_of_squares", parts);
  std::int64_t blocks = 0;
  for (const TensorView& part : parts) blocks += square_blocks(part.count());
  std::vector<double> sums(static_cast<std::size_t>(blocks));
  double* next = sums.data();
  for (const TensorView& part : parts) block_sums(part, std::exchange(next, next + square_blocks(part.count())));
  return sum_of_blocks(std::move(sums));
}

void ReferenceKernels::block_squares(const TensorView& part, const TensorView& sums) const {
  check_block_squares(DeviceKind::cpu, part, sums);
  block_sums(part, data<double>(sums));
}

}  // namespace lockstep::ops
