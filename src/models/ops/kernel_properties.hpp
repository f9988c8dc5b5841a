// What a backend's products promise about bits, found out by trial.
//
// Several shards may be computed at once if that gives the same bits as one after the other. Whether it does depends on
// how the backend's library handles a shape, which no library documents. So it is tried out on the shapes in use, with
// random operands, before anything relies on it. It is a property of an algorithm, not of the numbers: another order of
// a sum shows in some element of a few hundred.
//
// A model that takes one shard after the other does not rely on this. That kernels repeat their bits is their contract.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include <lockstep/core/base/philox.hpp>
#include <lockstep/models/ops/kernels.hpp>

namespace lockstep::ops {

/// Rows that a kernel takes all at once or block by block.
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
  Kernels::Activation activation = Kernels::Activation::none;
  DType dtype = DType::f32;
};

/// Tries out the products of one dense layer. LOCAL; blocks the host; takes a few times as long as the products.
///
/// Each trial also checks what everything relies on: that a call gives the same bits again with its operands elsewhere
/// in memory. DeviceError if it does not.
class DenseTrial {
 public:
  /// For blocks of one or more rows. Everything must outlive it; `stream` is the kernels' stream.
  DenseTrial(const Kernels& kernels, const DenseForm& form, RowBlocks blocks, Stream& stream);

  /// Whether a row of `linear` has the same bits among the rows of all blocks as among those of its own block.
  bool forward_rows_keep_their_bits();

  /// The same for dy · transposed weight, the gradient of a layer's inputs.
  bool input_gradient_rows_keep_their_bits();

  /// Whether `sum_of_products` of transposed x and dy, the gradient of a weight, has the bits of a `matmul` for each
  /// block, added up as fixed_order_sum does, and shows a product to whoever is to look at it, with the same bits, also
  /// one more that is not added.
  bool weight_gradients_add_up();

 private:
  using Views = std::span<const TensorView>;
  using Call = std::function<void(Views operands, const TensorView& result)>;

  struct Form {
    Shape shape;
    DType dtype;
  };

  /// A call. Its first operand, and its result, are cut by rows.
  struct RowCall {
    std::string_view name;
    std::int64_t columns;
    std::vector<Form> shared;  ///< the other operands
    std::int64_t result_columns;
    Call call;
  };

  bool rows_keep_their_bits(const RowCall& rows);

  /// Runs `call` on a copy of `before`. DeviceError unless a second run gives the same bits.
  Tensor result_of(std::string_view name, const Call& call, Views operands, const TensorView& before);

  Tensor random(const Form& form);

  const Kernels& kernels_;
  DenseForm form_;
  RowBlocks blocks_;
  Stream& stream_;
  std::uint64_t drawn_ = 0;  ///< random tensors drawn so far
};

}  // namespace lockstep::ops
