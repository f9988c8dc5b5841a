// Variables: handles to this rank's component of a logical variable.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <ranges>
#include <string>
#include <string_view>
#include <vector>

#include <lockstep/core/base/export.hpp>
#include <lockstep/core/base/here.hpp>
#include <lockstep/core/tensor/tensor.hpp>
#include <lockstep/core/values/leaves.hpp>

namespace lockstep {

class Variable;

namespace detail {

struct VariableState;  ///< what the handles of a variable share

/// "variable 'w' of strategy 0": an operand may be another strategy's.
LOCKSTEP_API std::string operand_text(const Variable& variable);

}  // namespace detail

/// A shared handle: copies, sliced or not, refer to one variable, which lives as long as its strategy or any handle.
class LOCKSTEP_API Variable {
 public:
  /// When the replicas' components become one value. `automatic` is what the creating method makes; `none` is refused.
  enum class Synchronization : std::uint8_t { automatic, none, on_write, on_read };

  /// How replicas' values become one: those assigned in replica context, or the components of a sync-on-read variable.
  enum class Aggregation : std::uint8_t { none, sum, mean, only_first_replica };

  /// Options of Strategy::create_variable and create_sync_on_read.
  struct Options {
    std::string name = {};  ///< need not be unique, see Variable::name. If empty, "Variable"
    bool trainable = true;
    Synchronization synchronization = Synchronization::automatic;
    Aggregation aggregation = Aggregation::none;
  };

  /// Unique in its strategy, and the same on every rank. The name asked for at creation or, if an earlier variable has
  /// it, that name with the first of "_1", "_2", … that makes a free one: "w", "w_1".
  std::string_view name() const;

  /// The name in quotes, as in messages: "'w_1'".
  std::string label() const;

  const Shape& shape() const;
  DType dtype() const;
  bool trainable() const;

  /// LOCAL. Whether it has memory and its initial value: on all ranks after Strategy::seal or the first run.
  bool is_initialized() const;

  /// LOCAL. This rank's elements, in place; valid as long as the variable lives. If another library has moved them, as
  /// LibTorch does in `torch::load`, they are copied back first. ContextError before the variable is initialized.
  TensorView local(Here here = Here::current()) const;

  /// LOCAL. The same elements, not to be written, as elements of `dtype`: the variable's own type or, for f32, bf16.
  /// Those are a copy, rounded to nearest even, which the variables that were sealed together share; on a GPU it is
  /// rounded by work on the strategy's stream. This call rounds it again if the values may have been written since: by
  /// an assignment, a restored checkpoint, a broadcast, or through a view from `local`. Optimizers keep the copy
  /// current themselves. Call `local` again before writing through a view that you kept; it marks the copy stale.
  /// Several threads may call this at the same time. ContextError as `local`, InvalidArgument for another type.
  TensorView for_reading(DType dtype, Here here = Here::current()) const;

  Aggregation aggregation() const;

  /// LOCAL. The only replica that updates the variable and keeps its optimizer state, under
  /// ReplicateOptions::Placement::chief or round_robin. Empty if every replica does.
  std::optional<int> holder() const;

  /// Overwrites (adds to, subtracts from) the variable. Integers wrap around. InvalidArgument if the shape or type of
  /// `value` is not the variable's. ContextError before the variable is initialized and in another strategy's context.
  ///
  /// In update context LOCAL: writes straight to this rank's component. Otherwise, for a mirrored variable
  /// - in cross-replica or default context LOCAL, so every rank must assign the same value;
  /// - in replica context COLL, one merge_call. The variable's aggregation makes one value of the replicas';
  ///   InvalidArgument if it has none, and for the mean of integers.
  ///
  /// For a sync-on-read variable
  /// - in replica context LOCAL, on this rank's component;
  /// - in cross-replica or default context `assign` makes `value` what a read returns. LOCAL, but every rank must do
  ///   it. If components are summed, each takes an equal part; if integers leave a remainder, the first replicas take
  ///   one more each. assign_add and assign_sub throw ContextError there.
  void assign(const Tensor& value, Here here = Here::current()) const;
  void assign_add(const Tensor& value, Here here = Here::current()) const;
  void assign_sub(const Tensor& value, Here here = Here::current()) const;

 protected:
  explicit Variable(std::shared_ptr<detail::VariableState> state) : state_{std::move(state)} {}

 private:
  friend struct detail::Inside<Variable>;
  std::shared_ptr<detail::VariableState> state_;
};

LOCKSTEP_API std::string_view name_of(Variable::Synchronization synchronization);
LOCKSTEP_API std::string_view name_of(Variable::Aggregation aggregation);

/// One value on all ranks. Every rank sets it alike, so reading it is LOCAL.
class MirroredVariable : public Variable {
  using Variable::Variable;
};

/// Each replica's own value, combined when it is read: a counter, a metric, a moving average. Never trainable.
class LOCKSTEP_API SyncOnReadVariable : public Variable {
  using Variable::Variable;

 public:
  /// COLL, agreed, blocking, in cross-replica context or outside every scope. Combines the components by the variable's
  /// aggregation and returns the value as a host tensor. ContextError in replica context (use `local` there), before
  /// the variable is initialized, and when the strategy is gone. InvalidArgument, before any communication, for a
  /// variable without aggregation and for the mean of integers.
  Tensor read(Here here = Here::current()) const;
};

namespace detail {

template <std::derived_from<Variable> T>
struct LeafText<T> {
  static std::string of(const T& variable) { return operand_text(variable); }
};

/// A range of handles of one type: a vector, a span, a view.
template <class T>
concept VariableRange =
    std::ranges::input_range<const T> && std::derived_from<std::ranges::range_value_t<const T>, Variable>;

/// Variables as an argument: `{w, b}`, of any types, or a VariableRange.
class VariableList : public std::vector<Variable> {
 public:
  VariableList(std::initializer_list<Variable> variables) : vector{variables} {}
  template <VariableRange Variables>
  VariableList(const Variables& variables) {
    for (const Variable& variable : variables) push_back(variable);
  }
};

}  // namespace detail
}  // namespace lockstep
