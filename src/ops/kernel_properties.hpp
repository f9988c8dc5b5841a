// What the products of a backend promise about bits, found out by trying.
//
// Several shards may be computed at once where that gives the bits of one after the other. Whether it does depends on
// how the backend's library goes about a shape, which no library documents. So it is tried out on the shapes in use,
// with random operands, before anybody relies on it. It is a property of an algorithm, not of the numbers: a different
// order of a sum shows in some element of a few hundred.
//
// A model that takes one shard after the other relies on none of this: that kernels repeat their bits is their
// contract.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include <lockstep/base/philox.hpp>
#include <lockstep/ops/kernels.hpp>

namespace lockstep::ops {

/// Rows that a kernel takes all at once, or block by block.
struct RowBlocks {
  std::int64_t rows;  ///< of each block
  std::int64_t blocks;

  std::int64_t all_rows() const { return rows * blocks; }
  auto operator<=>(const RowBlocks&) const = default;
};

/// The shapes of a dense layer's products.
struct DenseForm {
  std::int64_t inputs;
  std::int64_t outputs;
  Activation activation = Activation::none;
  DType dtype = DType::f32;
};

/// Tries out the products of one dense layer. LOCAL; blocks the host; takes a few times as long as the products.
///
/// Each trial also asks what nothing can do without: that a call has the same bits a second time, with its operands
/// elsewhere in memory. DeviceError where it has not.
class DenseTrial {
 public:
  /// Of blocks of one or more rows. Everything must outlive it; `stream` is the one of the kernels.
  DenseTrial(const Kernels& kernels, const DenseForm& form, RowBlocks blocks, Stream& stream);

  /// Whether a row of `linear` has the same bits among the rows of all blocks as among those of its own.
  bool forward_rows_keep_their_bits();

  /// The same of dy · transposed weight, the gradient of a layer's inputs.
  bool input_gradient_rows_keep_their_bits();

  /// Whether `sum_of_products` of transposed x and dy, the gradient of a weight, has the bits of a `matmul` for each
  /// block, added up as fixed_order_sum does.
  bool weight_gradients_add_up();

 private:
  using Views = std::span<const TensorView>;
  using Call = std::function<void(Views operands, const TensorView& result)>;

  /// Operands of a call, of which the first is cut by rows, as the result is.
  struct RowCall {
    std::string_view name;
    std::int64_t columns;
    std::vector<Shape> shared;  ///< the shapes of the others
    std::int64_t result_columns;
    Call call;
  };

  bool rows_keep_their_bits(const RowCall& rows);

  /// What `call` makes of `before`. DeviceError unless it does so twice.
  Tensor result_of(std::string_view name, const Call& call, Views operands, const TensorView& before);

  Tensor random(Shape shape);

  const Kernels& kernels_;
  DenseForm form_;
  RowBlocks blocks_;
  Stream& stream_;
  std::uint64_t drawn_ = 0;  ///< tensors of random numbers
};

}  // namespace lockstep::ops
