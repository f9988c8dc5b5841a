// Digests of a tensor's elements, on any device.
#pragma once

#include <cstdint>

#include <lockstep/core/tensor/tensor.hpp>

#include "core/base/digest.hpp"
#include "core/base/parts.hpp"

namespace lockstep::detail {

/// The digest of the elements' bytes, in memory order. For a GPU, waits for the work enqueued before.
LOCKSTEP_PARTS_API std::uint64_t digest_of_elements(const TensorView& tensor);

/// Adds the same bytes to `digest`. Parts that are added one after the other have the digest of the whole.
LOCKSTEP_PARTS_API void add_elements(WideDigest& digest, const TensorView& tensor);

}  // namespace lockstep::detail
