// Where a model writes its gradients.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <lockstep/core/base/export.hpp>
#include <lockstep/sync/strategy/variable_store.hpp>

namespace lockstep::nn {

class ReadyListener;

/// Flat memory for the gradients of a model's variables, in the store's layout. Sums over shards are therefore sums of
/// flat memory, and an optimizer takes the result without a copy. A handle: copies refer to the same memory.
class LOCKSTEP_API GradientBuffer {
 public:
  /// The store's own gradients of `variables`. ContextError before they are sealed. InvalidArgument unless there is at
  /// least one, all are trainable and of one dtype, and they are adjacent in the store: created without others in
  /// between and sealed together.
  GradientBuffer(const VariableStore& store, std::span<const Variable> variables);

  /// The same layout in other memory, of this dtype and number of elements, which must outlive the result. Zeroes the
  /// padding between the gradients there. Has no place for statistics. InvalidArgument for a view that does not fit.
  GradientBuffer at(const TensorView& flat) const;

  /// The same with memory for a shard's statistics (Model::statistics), of the gradients' dtype. It must outlive the
  /// result. InvalidArgument for another dtype.
  GradientBuffer with_statistics(const TensorView& statistics) const;

  /// Empty unless `with_statistics` set it.
  const TensorView& statistics() const { return statistics_; }

  /// The variables that the buffer was made for, in the order of memory: the last one created comes first, about as a
  /// backward pass completes their gradients.
  std::span<const Variable> variables() const { return layout_->variables; }

  /// All gradients. The padding between them is zero, and must stay so.
  const TensorView& flat() const { return flat_; }
  DType dtype() const { return flat_.dtype(); }
  std::int64_t count() const { return flat_.count(); }

  /// The store's stream. The memory is on its device, and work on it is enqueued there.
  Stream& stream() const { return *stream_; }

  /// Where to write the gradient of `variable`, in the variable's shape. InvalidArgument for a variable that the buffer
  /// was not made for.
  TensorView of(const Variable& variable) const;

  /// Where it stands among variables(). InvalidArgument as `of`.
  std::size_t position_of(const Variable& variable) const;

  /// Says that the backward pass neither reads nor writes the gradient of `variable` any more, so that it may be added
  /// up and sent while the pass continues. Each layer says so of its own variables, at most once in a pass; a variable
  /// that two layers share is ready after its last use. Variables that a pass does not report are ready at its end.
  /// InvalidArgument as `of`, and, from the listener, for a variable that was ready before in the same pass.
  void ready(const Variable& variable) const;

 private:
  friend struct detail::Inside<GradientBuffer>;
  struct Layout {
    std::vector<Variable> variables;  ///< in memory order
    std::int64_t first;               ///< where the range begins in its segment
  };

  GradientBuffer(TensorView flat, std::shared_ptr<const Layout> layout, Stream& stream);
  void zero_padding() const;
  GradientBuffer reporting_to(ReadyListener& listener) const;

  Stream* stream_;
  TensorView flat_;
  TensorView statistics_;
  std::shared_ptr<const Layout> layout_;
  ReadyListener* listener_ = nullptr;
};

}  // namespace lockstep::nn
