// Variables: handles on this rank's component of a logical variable.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <ranges>
#include <string>
#include <string_view>
#include <vector>

#include <lockstep/control/tag.hpp>
#include <lockstep/tensor/tensor.hpp>

namespace lockstep {

/// When the replicas' components become one: when they are written, or when they are read. `automatic` is what the
/// method that creates the variable makes; `none` is refused.
enum class VariableSynchronization : std::uint8_t { automatic, none, on_write, on_read };
enum class VariableAggregation : std::uint8_t { none, sum, mean, only_first_replica };

std::string_view name_of(VariableSynchronization synchronization);
std::string_view name_of(VariableAggregation aggregation);

struct VariableOptions {
  std::string name;
  bool trainable = true;
  VariableSynchronization synchronization = VariableSynchronization::automatic;
  /// How the replicas' values become one: of a mirrored variable those assigned in replica context, of a sync-on-read
  /// variable its components when it is read.
  VariableAggregation aggregation = VariableAggregation::none;
};

namespace detail {
struct VariableState;
}

/// A shared handle: copies and slices mean the same variable, which lives as long as its strategy or a handle does.
class Variable {
 public:
  /// As given at creation, verbatim.
  std::string_view name() const;

  /// How messages call it: "'w'", and "'w' #2" where it is the second of that name in its strategy.
  std::string_view label() const;

  const Shape& shape() const;
  DType dtype() const;
  bool trainable() const;

  /// LOCAL. Whether this rank's component has memory and its initial value: once it is sealed (Strategy::seal, or the
  /// first run), which all ranks do together.
  bool is_initialized() const;

  /// This rank's elements, in place. ContextError before the variable is initialized.
  TensorView local() const;

  VariableAggregation aggregation() const;

  /// Overwrites (adds to, subtracts from) the variable. InvalidArgument for a value of another shape or type. Integers
  /// wrap around. LOCAL in
  /// update context: straight on this rank's component. Otherwise, of a mirrored variable
  /// - in cross-replica context LOCAL on every rank, so every rank must assign the same value;
  /// - in replica context COLL, one merge_call; the replicas' values become one by the variable's aggregation, and a
  ///   variable without one is an InvalidArgument.
  /// Of a sync-on-read variable
  /// - in replica context LOCAL, on this rank's component;
  /// - in cross-replica context `assign` makes `value` what a read gives: LOCAL on every rank, which must all do it.
  ///   Where components are summed each takes an equal part; of integers that leave a remainder the first replicas
  ///   take one more. The others are a ContextError there.
  void assign(const Tensor& value, Here here = Here::current()) const;
  void assign_add(const Tensor& value, Here here = Here::current()) const;
  void assign_sub(const Tensor& value, Here here = Here::current()) const;

  /// The library's side of the handle.
  detail::VariableState& state() const { return *state_; }

 protected:
  explicit Variable(std::shared_ptr<detail::VariableState> state) : state_{std::move(state)} {}

 private:
  std::shared_ptr<detail::VariableState> state_;
};

/// One value on all ranks: set alike everywhere, so reading it is local.
class MirroredVariable : public Variable {
 public:
  explicit MirroredVariable(std::shared_ptr<detail::VariableState> state) : Variable{std::move(state)} {}
};

/// Each replica's own value, combined when it is read: a counter, a metric, a moving average. Never trainable.
class SyncOnReadVariable : public Variable {
 public:
  explicit SyncOnReadVariable(std::shared_ptr<detail::VariableState> state) : Variable{std::move(state)} {}

  /// COLL, blocking, agreed, in cross-replica context or outside every scope: the components combined by the variable's
  /// aggregation, as a tensor of the host. ContextError in replica context, where `local` is this replica's component,
  /// and when the strategy is gone. InvalidArgument, before any communication, for a variable without aggregation and
  /// for the mean of integers.
  Tensor read(Here here = Here::current()) const;
};

/// Handles of one type: a vector, a span, a view.
template <class T>
concept VariableRange =
    std::ranges::input_range<const T> && std::derived_from<std::ranges::range_value_t<const T>, Variable>;

/// Variables as an argument: `{w, b}`, of any types, or a VariableRange. Has handles of its own.
class VariableList {
 public:
  VariableList(std::initializer_list<Variable> variables) : variables_{variables} {}
  template <VariableRange Variables>
  VariableList(const Variables& variables) {
    for (const Variable& variable : variables) variables_.push_back(variable);
  }

  auto begin() const { return variables_.begin(); }
  auto end() const { return variables_.end(); }
  std::size_t size() const { return variables_.size(); }

 private:
  std::vector<Variable> variables_;
};

}  // namespace lockstep
