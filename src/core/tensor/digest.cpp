#include "core/tensor/digest.hpp"

#include <span>

namespace lockstep::detail {

std::uint64_t digest_of_elements(const TensorView& tensor) {
  if (tensor.device() != DeviceKind::cpu) return digest_of_elements(Tensor::on_host(tensor).view());
  return digest_of(std::span<const std::byte>{tensor.data(), tensor.bytes()});
}

void add_elements(WideDigest& digest, const TensorView& tensor) {
  if (tensor.device() != DeviceKind::cpu) return add_elements(digest, Tensor::on_host(tensor).view());
  digest.update(std::span<const std::byte>{tensor.data(), tensor.bytes()});
}

}  // namespace lockstep::detail
