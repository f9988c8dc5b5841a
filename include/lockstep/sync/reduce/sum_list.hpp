// Which sums over the ranks a computation will make.
#pragma once

#include <cstdint>
#include <vector>

#include <lockstep/core/base/dtype.hpp>

namespace lockstep::detail {

/// Tensors of one type, to be summed over the ranks one after the other.
struct SumList {
  DType dtype = DType::f32;
  std::vector<std::int64_t> counts = {};  ///< number of elements of each
};

}  // namespace lockstep::detail
