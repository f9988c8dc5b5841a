// Rows of all ranks, which come together while the ranks do something else.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include <lockstep/core/tensor/tensor.hpp>

#include "core/comm/exchange_queue.hpp"

namespace lockstep::detail {

// COLL, but these return at once, for tensors on the host. The numbers of rows travel first. What is returned says if
// all is done: it must be called until it is, and the tensors must live until then.

/// Each of the tensors, which have one number of rows, becomes the rows of all ranks, one after the other in the order
/// of the ranks. If no rank has rows, all stay as they are.
std::function<bool()> gather_rows(ExchangeQueue& exchanges, std::vector<Tensor*> tensors, int rank, int ranks);

/// The tensor of rank `to` becomes that of rank `from`. On other ranks it stays as it is.
std::function<bool()> send_rows(ExchangeQueue& exchanges, Tensor& tensor, int rank, int ranks, int from, int to);

/// The tensor, of which the first `counts[0]` rows are for rank 0 and so on, becomes the rows that are for this rank,
/// in the order of the ranks, and `counts` their numbers.
std::function<bool()> swap_rows(ExchangeQueue& exchanges, Tensor& tensor, std::span<std::int64_t> counts, int rank,
                                int ranks);

}  // namespace lockstep::detail
