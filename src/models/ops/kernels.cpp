#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>
#include <lockstep/models/ops/kernels.hpp>

#include "core/base/excerpt.hpp"
#include "core/device/gpu_backend.hpp"
#include "models/ops/answer.hpp"
#include "models/ops/backends.hpp"
#include "models/ops/gpu_kernels.hpp"
#include "models/ops/kernel_choice.hpp"

namespace lockstep::ops {

Kernels::BatchLoss Kernels::softmax_cross_entropy(const Matrix& logits, const TensorView& labels, std::int64_t samples,
                                                  const Matrix& d_logits) const {
  return start_softmax_cross_entropy(logits, labels, samples, d_logits).wait();
}

Kernels::BatchLoss Kernels::softmax_cross_entropy(const Matrix& logits, const TensorView& labels,
                                                  std::int64_t samples) const {
  return start_softmax_cross_entropy(logits, labels, samples).wait();
}

Kernels::Choice parse_kernel_choice(std::string_view name) {
  if (name == "auto") return Kernels::Choice::automatic;
  if (name == "reference") return Kernels::Choice::reference;
  if (name == "onednn") return Kernels::Choice::onednn;
  if (name == "cuda") return Kernels::Choice::cuda;
  throw ConfigError{
      fmt::format("there are no kernels called '{}': expected auto, reference, onednn or cuda", excerpt(name))};
}

std::unique_ptr<Kernels> make_kernels(Kernels::Choice choice, Kernels::Threads threads, Stream& stream) {
  if (threads.count < 1) throw InvalidArgument{fmt::format("kernels need at least one thread, not {}", threads.count)};
  const bool on_gpu = stream.kind() == DeviceKind::cuda;
  if (on_gpu && (choice == Kernels::Choice::reference || choice == Kernels::Choice::onednn))
    throw ConfigError{"the reference and onednn kernels run on the CPU, but the device is cuda: expected auto or cuda"};
  if (!on_gpu && choice == Kernels::Choice::cuda)
    throw ConfigError{"the cuda kernels run on a GPU, but the device is cpu: expected auto, reference or onednn"};
  switch (choice) {
    case Kernels::Choice::automatic:
      if (on_gpu) return detail::gpu_backend().kernels->make_kernels(stream);
      return onednn_is_built_in() ? make_onednn_kernels(threads) : make_reference_kernels();
    case Kernels::Choice::cuda: return detail::gpu_backend().kernels->make_kernels(stream);
    case Kernels::Choice::reference: return make_reference_kernels();
    case Kernels::Choice::onednn: return make_onednn_kernels(threads);
  }
  throw InvalidArgument{fmt::format("{} is no choice of kernels", static_cast<int>(choice))};
}

}  // namespace lockstep::ops
