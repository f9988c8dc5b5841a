// Tensors that share the memory of another.
#pragma once

#include <cstdint>

#include <lockstep/core/tensor/tensor.hpp>

#include "core/base/parts.hpp"

namespace lockstep::detail {

/// Rows [first, first + rows) of `whole`, which has a first dimension.
LOCKSTEP_PARTS_API Tensor rows_of(const Tensor& whole, std::int64_t first, std::int64_t rows);

/// `tensor` itself if it is on the host, else a copy there.
Tensor on_host(const Tensor& tensor);

}  // namespace lockstep::detail
