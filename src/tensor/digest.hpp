// Digests of a tensor's elements, on any device.
#pragma once

#include <cstdint>

#include <lockstep/tensor/tensor.hpp>

#include "base/digest.hpp"

namespace lockstep::detail {

/// The digest of the elements' bytes, in memory order. For a GPU, waits for the work enqueued before.
std::uint64_t digest_of_elements(const TensorView& tensor);

/// Adds the same bytes to `digest`, which so becomes that of several tensors behind each other.
void add_elements(Digest& digest, const TensorView& tensor);

}  // namespace lockstep::detail
