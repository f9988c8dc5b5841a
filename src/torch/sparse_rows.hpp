// Rows of a table's gradient, such as an embedding's: what a rank has touched, and how it adds up over the ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

#include "reduce/cross_device_ops.hpp"
#include "torch/torch_device.hpp"

namespace lockstep::libtorch {

/// On the host, each row once, in ascending order. The rows of a table of 16-bit floats are f32, so that a sum is
/// rounded once.
struct Rows {
  std::vector<std::int64_t> indices;
  at::Tensor values;  ///< [indices, elements of a row], contiguous
};

/// No row of `table`.
Rows no_rows_of(const at::Tensor& table);

/// The rows that `gradient` names if it is sparse, else all. Those of one index are added up in their order. Waits for
/// a GPU.
Rows rows_of(const at::Tensor& gradient, TorchDevice& device);

/// The sum of `parts`, of which there is at least one. Rows of one index are added up in the order of the parts,
/// without a zero for a part that lacks the row.
Rows sum_in_order(std::span<const Rows> parts);

/// The same sum in the tree of fixed_order.hpp. An aligned run of 2^k parts may be summed elsewhere and pushed as one.
class RowTree {
 public:
  void push(Rows part);

  /// Of all parts pushed since the last call. There is at least one.
  Rows finish();

 private:
  void join_last_two();

  struct Partial {
    Rows sum;
    std::int64_t parts;
  };
  std::vector<Partial> partials_;  ///< of strictly decreasing sizes
};

/// A coalesced gradient of `table`, on its device. Rounds the values to its type.
at::Tensor sparse_gradient(const Rows& rows, const at::Tensor& table);

/// The same for this library's optimizers, on the host.
IndexedSlices slices_of(const Rows& rows, const at::Tensor& table);

/// The rows of several tables as one message.
class RowMessage {
 public:
  /// `rows` has one entry for each table, whose type the values travel in.
  RowMessage(std::span<const Rows> rows, std::span<const at::Tensor> tables);

  std::int64_t bytes() const { return packed_.count(); }

  /// COLL. All ranks' rows as [table][rank]. `bytes` has the size of each rank's message, and none sends more than
  /// `most` at once: MPI counts the bytes of all ranks together in 31 bits.
  std::vector<std::vector<Rows>> gather(CrossDeviceOps& reductions, std::span<const at::Tensor> tables,
                                        std::span<const std::int64_t> bytes, std::int64_t most) const;

 private:
  Tensor packed_;
};

}  // namespace lockstep::libtorch
