// The kernels of optimizers on the host, and the choice of a device's.
#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>
#include <vector>

#include "core/base/wide_loop.hpp"
#include "core/device/gpu_backend.hpp"
#include "core/tensor/with_type.hpp"
#include "sync/update/square_blocks.hpp"
#include "sync/update/update_checks.hpp"
#include "sync/update/update_kernels.hpp"
#include "sync/update/update_loops.hpp"
#include "sync/update/update_scalars.hpp"

namespace lockstep::detail {
namespace {

template <class T>
T* data(const TensorView& view) {
  return view.elements<T>().data();
}

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

class HostUpdateKernels final : public UpdateKernels {
 public:
  explicit HostUpdateKernels(Functions functions) : functions_{functions} {}

  void sgd(const TensorView& values, const TensorView& gradient, const UpdateStep& step) const override {
    check_update(DeviceKind::cpu, "sgd", {&values, &gradient}, step);
    with_type(values.dtype(),
              [&]<class T>() { loops::sgd(data<T>(values), data<T>(gradient), scalars_of<T>(step), values.count()); });
  }

  void momentum(const TensorView& values, const TensorView& gradient, const TensorView& velocity,
                const UpdateStep& step, double momentum) const override {
    check_update(DeviceKind::cpu, "momentum", {&values, &gradient, &velocity}, step);
    check_fraction("momentum", "momentum", momentum);
    with_type(values.dtype(), [&]<class T>() {
      loops::momentum(data<T>(values), data<T>(gradient), data<T>(velocity), scalars_of<T>(step),
                      static_cast<T>(momentum), values.count());
    });
  }

  void adamw(const TensorView& values, const TensorView& gradient, const TensorView& first, const TensorView& second,
             const UpdateStep& step, const AdamWMoments& moments) const override {
    check_update(DeviceKind::cpu, "adamw", {&values, &gradient, &first, &second}, step);
    check_moments("adamw", moments);
    with_type(values.dtype(), [&]<class T>() {
      loops::adamw(data<T>(values), data<T>(gradient), data<T>(first), data<T>(second), scalars_of<T>(step),
                   scalars_of<T>(moments, step, functions_), values.count());
    });
  }

  Answer<double> start_sum_of_squares(std::span<const TensorView> parts) const override {
    check_floats(DeviceKind::cpu, "sum_of_squares", parts);
    std::int64_t blocks = 0;
    for (const TensorView& part : parts) blocks += square_blocks(part.count());
    std::vector<double> sums(static_cast<std::size_t>(blocks));
    double* next = sums.data();
    for (const TensorView& part : parts) block_sums(part, std::exchange(next, next + square_blocks(part.count())));
    return sum_of_blocks(std::move(sums));
  }

  void block_squares(const TensorView& part, const TensorView& sums) const override {
    check_block_squares(DeviceKind::cpu, part, sums);
    block_sums(part, data<double>(sums));
  }

 private:
  Functions functions_;
};

}  // namespace

/// In the tree of fixed_order_sum: neighbours, then neighbouring pairs, and so on.
double UpdateKernels::sum_of_blocks(std::vector<double> sums) {
  for (std::size_t distance = 1; distance < sums.size(); distance *= 2)
    for (std::size_t i = 0; i + distance < sums.size(); i += 2 * distance) sums[i] += sums[i + distance];
  return sums.empty() ? 0 : sums.front();
}

std::unique_ptr<UpdateKernels> make_update_kernels(Functions functions, Stream& stream) {
  if (stream.kind() == DeviceKind::cpu) return std::make_unique<HostUpdateKernels>(functions);
  return gpu_backend().make_update_kernels(stream);
}

}  // namespace lockstep::detail
