// Where a model's gradients are written.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <lockstep/strategy/variable_store.hpp>

namespace lockstep::nn {

/// Flat memory for the gradients of a model's variables, laid out as the store lays them out, so that the
/// sums of several shards are sums of flat memory, and the result is what an optimizer takes. A handle:
/// copies mean the same memory.
class GradientBuffer {
 public:
  /// The store's own gradients of `variables`. ContextError before they are sealed. InvalidArgument unless
  /// they are trainable, of one dtype, and next to each other in the store: created without others in between
  /// and sealed together.
  GradientBuffer(const VariableStore& store, std::span<const Variable> variables);

  /// The same layout in other memory: of this dtype and number of elements, which must outlive the result.
  /// Zeroes the padding between the gradients there. Has no place for statistics. InvalidArgument for a view that does
  /// not fit.
  GradientBuffer at(const TensorView& flat) const;

  /// The same with a place for what else a shard yields (Model::statistics): of the gradients' dtype, in memory that
  /// must outlive the result. InvalidArgument for another dtype.
  GradientBuffer with_statistics(const TensorView& statistics) const;

  /// Without elements unless `with_statistics` gave it some.
  const TensorView& statistics() const { return statistics_; }

  /// All gradients. Padding between the gradients is zero, and whoever writes leaves it so.
  const TensorView& flat() const { return flat_; }
  DType dtype() const { return flat_.dtype(); }
  std::int64_t count() const { return flat_.count(); }

  /// The store's: the memory is of its device, and work on it is enqueued there.
  Stream& stream() const { return *stream_; }

  /// Where the gradient of `variable` is to be written, in the variable's shape. InvalidArgument for a
  /// variable that the buffer was not made for.
  TensorView of(const Variable& variable) const;

 private:
  struct Layout {
    std::vector<Variable> variables;  ///< in the order of memory
    std::int64_t first;               ///< where the range begins in its segment
  };

  GradientBuffer(TensorView flat, std::shared_ptr<const Layout> layout, Stream& stream);
  void zero_padding() const;

  Stream* stream_;
  TensorView flat_;
  TensorView statistics_;
  std::shared_ptr<const Layout> layout_;
};

}  // namespace lockstep::nn
