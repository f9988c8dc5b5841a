// Operands without elements are handled before anything is launched, because CUDA does not accept them.
#include "sync/update/cuda/cuda_update_kernels.hpp"

#include "core/device/cuda/answers.hpp"
#include "core/device/cuda/native.hpp"
#include "core/device/cuda/scratch.hpp"
#include "core/tensor/with_type.hpp"
#include "sync/update/cuda/launch.hpp"
#include "sync/update/square_blocks.hpp"
#include "sync/update/update_checks.hpp"
#include "sync/update/update_scalars.hpp"

namespace lockstep::detail::cuda {
namespace {

constexpr DeviceKind here = DeviceKind::cuda;

template <class T>
T* data(const TensorView& view) {
  return reinterpret_cast<T*>(view.data());
}

class CudaUpdateKernels final : public UpdateKernels {
 public:
  explicit CudaUpdateKernels(Stream& stream) : stream_{stream}, scratch_{stream}, answers_{stream, scratch_} {}

  void sgd(const TensorView& values, const TensorView& gradient, const UpdateStep& step) const override {
    check_update(here, "sgd", {&values, &gradient}, step);
    if (values.count() == 0) return;
    with_type(values.dtype(), [&]<class T>() {
      check_cuda(
          launch_sgd(data<T>(values), data<const T>(gradient), scalars_of<T>(step), values.count(), native(stream_)),
          "the launch of sgd");
    });
  }

  void momentum(const TensorView& values, const TensorView& gradient, const TensorView& velocity,
                const UpdateStep& step, double momentum) const override {
    check_update(here, "momentum", {&values, &gradient, &velocity}, step);
    check_fraction("momentum", "momentum", momentum);
    if (values.count() == 0) return;
    with_type(values.dtype(), [&]<class T>() {
      check_cuda(launch_momentum(data<T>(values), data<const T>(gradient), data<T>(velocity), scalars_of<T>(step),
                                 static_cast<T>(momentum), values.count(), native(stream_)),
                 "the launch of momentum");
    });
  }

  void adamw(const TensorView& values, const TensorView& gradient, const TensorView& first, const TensorView& second,
             const UpdateStep& step, const AdamWMoments& moments) const override {
    check_update(here, "adamw", {&values, &gradient, &first, &second}, step);
    check_moments("adamw", moments);
    if (values.count() == 0) return;
    with_type(values.dtype(), [&]<class T>() {
      check_cuda(
          launch_adamw(data<T>(values), data<const T>(gradient), data<T>(first), data<T>(second), scalars_of<T>(step),
                       scalars_of<T>(moments, step, Functions::of_library), values.count(), native(stream_)),
          "the launch of adamw");
    });
  }

  Answer<double> start_sum_of_squares(std::span<const TensorView> parts) const override {
    check_floats(here, "sum_of_squares", parts);
    std::int64_t blocks = 0;
    for (const TensorView& part : parts) blocks += square_blocks(part.count());
    if (blocks == 0) return 0;
    const Answers::Call call{answers_, static_cast<std::size_t>(blocks) * sizeof(double)};
    auto* const sums = reinterpret_cast<double*>(call.memory());
    double* next = sums;
    for (const TensorView& part : parts) {
      if (part.count() == 0) continue;
      with_type(part.dtype(), [&]<class T>() {
        check_cuda(launch_block_sums(data<const T>(part), part.count(), next, native(stream_)),
                   "the launch of sum_of_squares");
      });
      next += square_blocks(part.count());
    }
    check_cuda(launch_sum_of_sums(sums, blocks, native(stream_)), "the launch of sum_of_squares");
    return {stream_, [sum = call.send<double>()] { return *sum; }};
  }

  void block_squares(const TensorView& part, const TensorView& sums) const override {
    check_block_squares(here, part, sums);
    if (part.count() == 0) return;
    with_type(part.dtype(), [&]<class T>() {
      check_cuda(launch_block_sums(data<const T>(part), part.count(), data<double>(sums), native(stream_)),
                 "the launch of block_squares");
    });
  }

 private:
  Stream& stream_;
  Scratch scratch_;
  Answers answers_;
};

}  // namespace

std::unique_ptr<UpdateKernels> make_update_kernels(Stream& stream) {
  return std::make_unique<CudaUpdateKernels>(stream);
}

}  // namespace lockstep::detail::cuda
