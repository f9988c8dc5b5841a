// The elements of a tensor as a digest, wherever they are.
#pragma once

#include <cstdint>

#include <lockstep/tensor/tensor.hpp>

namespace lockstep::detail {

/// Of the bytes, in the order of memory. On a GPU it waits for the work enqueued before.
std::uint64_t digest_of_elements(const TensorView& tensor);

}  // namespace lockstep::detail
