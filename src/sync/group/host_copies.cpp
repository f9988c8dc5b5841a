#include "sync/group/host_copies.hpp"

#include <utility>

#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>

#include "core/device/device.hpp"
#include "core/tensor/inside.hpp"
#include "sync/reduce/operand_text.hpp"

namespace lockstep::detail {

HostCopies::~HostCopies() {
  try {
    wait();
    if (back_) back_->synchronize();
  } catch (...) {
    // The GPU has failed: no copy goes on.
  }
  for (Copy& each : copies_) {
    each.on_host = {};
    pinned_->give_back(std::move(each.memory));
  }
}

auto HostCopies::copy_to_host(const TensorView& values, Tensor* tensor, Use use) -> Copy& {
  require_here(values, compute_);
  if (compute_.is_capturing())
    throw ContextError{
        fmt::format("a request with {} on a GPU, in the capture of a step: expected it outside", describe(values))};
  PinnedPool::Pinned memory = pinned_->take(values.bytes());
  Tensor on_host = tensor_in(memory, {memory->data(), values.shape(), values.dtype()});
  Copy& made = copies_.emplace_back(Copy{values, tensor, std::move(memory), std::move(on_host), use});
  if (use == Use::sends || use == Use::both) {
    copy(values, made.on_host.view(), compute_);
    come_ = inside(compute_).record();
  }
  return made;
}

TensorView HostCopies::of(const TensorView& values, Use use) {
  if (values.device() == DeviceKind::cpu) return values;
  if (use == Use::none) return {nullptr, values.shape(), values.dtype()};
  return copy_to_host(values, nullptr, use).on_host.view();
}

Tensor& HostCopies::of(Tensor& tensor, Use use) {
  if (tensor.device() == DeviceKind::cpu) return tensor;
  return copy_to_host(tensor.view(), &tensor, use).on_host;
}

void HostCopies::wait() const {
  if (come_) come_->synchronize();
}

void HostCopies::put_back() {
  std::call_once(put_back_, [this] {
    for (const auto& [on_gpu, tensor, memory, on_host, use] : copies_) {
      if (use != Use::receives && use != Use::both) continue;
      if (tensor)
        *tensor = Tensor::copy_of(on_host.view(), compute_);
      else
        copy(on_host.view(), on_gpu, compute_);
    }
    if (!copies_.empty()) back_ = inside(compute_).record();
  });
}

}  // namespace lockstep::detail
