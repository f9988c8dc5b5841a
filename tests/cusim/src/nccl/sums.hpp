// The arithmetic of reductions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <nccl.h>

namespace cusim {

/// The size of an element. 0 for a type that cannot be sent.
std::size_t bytes_of(ncclDataType_t type);

/// Whether numbers of this type can be added up here. 8-bit floats can only be sent.
bool can_reduce(ncclDataType_t type);

const char* name_of(ncclDataType_t type);

/// How the numbers of the ranks are combined. Silicon promises neither an order nor a place for a mean's division, so
/// both are drawn; all ranks of one call use the same `seed`.
struct ReductionOrder {
  bool by_rank = false;    ///< from rank 0 on, the division last; `seed` is not used
  std::uint64_t seed = 0;  ///< another order for each block of elements
};

/// Writes to `to` the reduction of `count` numbers of each rank, which `from` has in the order of the ranks. `to` may
/// be one of them.
void reduce(ncclRedOp_t op, ncclDataType_t type, ReductionOrder order, const std::vector<const std::byte*>& from,
            std::byte* to, std::size_t count);

}  // namespace cusim
