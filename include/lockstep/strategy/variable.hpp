// Variables: handles on this rank's component of a logical variable.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include <lockstep/control/tag.hpp>
#include <lockstep/tensor/tensor.hpp>

namespace lockstep {

/// When the replicas' components become one. `create_variable` makes mirrored variables, which are set alike on every
/// rank: it takes `automatic` and `on_write`, and refuses the others.
enum class VariableSynchronization : std::uint8_t { automatic, none, on_write, on_read };
enum class VariableAggregation : std::uint8_t { none, sum, mean, only_first_replica };

std::string_view name_of(VariableSynchronization synchronization);
std::string_view name_of(VariableAggregation aggregation);

struct VariableOptions {
  std::string name;
  bool trainable = true;
  VariableSynchronization synchronization = VariableSynchronization::automatic;
  /// How values assigned in replica context become one.
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
  const Shape& shape() const;
  DType dtype() const;
  bool trainable() const;

  /// This rank's elements, in place. ContextError before the variable is sealed (Strategy::seal, or the first run).
  TensorView local() const;

  /// Overwrites (adds to, subtracts from) the variable.
  /// In cross-replica context: LOCAL on every rank, so every rank must assign the same value.
  /// In replica context: COLL, one merge_call; the replicas' values become one by the variable's aggregation.
  /// InvalidArgument for a value of another shape or type, and in replica context for a variable without aggregation.
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

}  // namespace lockstep
