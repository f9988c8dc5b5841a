// Tensors that store only some of their elements, such as the words of each text in a batch.
#pragma once

#include <lockstep/core/base/export.hpp>
#include <lockstep/core/tensor/tensor.hpp>

namespace lockstep {

/// `values[i]` is the element at `indices[i]`; all others are zero. Elements have any order.
struct LOCKSTEP_API SparseTensor {
  Tensor indices;     ///< i64 [n, dimensions]
  Tensor values;      ///< [n], in memory of the same device
  Shape dense_shape;  ///< one extent or more

  /// InvalidArgument unless the parts fit together and every index is inside the dense shape. Waits for a GPU that
  /// holds the indices.
  void require_valid() const;

  /// Piece `number` of `pieces` along the first dimension, in memory of the stream's device. If the pieces do not
  /// divide the rows, the first pieces have one row more; pieces may be empty. Elements keep their
  /// order, and row 0 is the first of the piece. InvalidArgument for a tensor that is not valid, and unless 0 <= number
  /// < pieces.
  SparseTensor piece(int number, int pieces, Stream& stream = Stream::host()) const;
};

}  // namespace lockstep
