// Where the variables of a strategy live: flat memory, one offset for a variable, its gradient and its optimizer slots.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <lockstep/strategy/variable.hpp>

namespace lockstep {

class Strategy;
class VariableStore;

namespace detail {

/// Variables that were sealed together and are of one kind and dtype: one flat buffer for each of values, gradients and
/// slots.
struct StoreSegment {
  Stream* stream;
  DType dtype;
  bool trainable;
  VariableSynchronization synchronization;
  std::int64_t count;
  Tensor values;
  Tensor gradients;                     ///< empty where nothing is trainable
  std::map<std::string, Tensor> slots;  ///< by name, made when first asked for
};

struct VariableState {
  std::string name;
  std::string label;  ///< Variable::label
  Shape shape;
  DType dtype;
  bool trainable;
  VariableSynchronization synchronization;  ///< on_write or on_read
  VariableAggregation aggregation;
  const VariableStore* owner;             ///< the store of the strategy that made it; compared, never followed
  std::shared_ptr<Strategy*> strategy;    ///< where that strategy is now; null inside once it is gone
  Tensor initial;                         ///< until it is sealed
  std::shared_ptr<StoreSegment> segment;  ///< from then on
  std::int64_t offset = 0;                ///< in the segment, in elements
};

}  // namespace detail

/// Neighbouring variables as one range of flat memory. Padding between them is zero in values, gradients and slots
/// alike.
struct FlatRange {
  TensorView values;
  TensorView gradients;
  detail::StoreSegment* segment;
  std::int64_t first;  ///< where the range begins in the segment, in elements

  /// The stream that work on the range is enqueued on.
  Stream& stream() const { return *segment->stream; }

  /// The same range of the optimizer slot `name`; zeros when first asked for.
  TensorView slot(std::string_view name) const;
};

/// A piece of optimizer state: what one slot keeps for one variable, or a counter.
struct OptimizerState {
  std::string name;  ///< "w@momentum", "optimizer@steps"
  TensorView value;
};

/// The variables of one strategy. LOCAL throughout: what must be agreed, the strategy agrees on.
class VariableStore {
 public:
  /// Alignment of every view into flat memory.
  static constexpr std::size_t alignment_bytes = 256;

  /// In memory of the stream's device, which must outlive every variable; `stream` must too.
  explicit VariableStore(Stream& stream = host_stream()) : stream_{&stream} {}

  Stream& stream() const { return *stream_; }

  /// Variable::label of the next variable that is called `name`.
  std::string next_label(std::string_view name) const;

  void add(std::shared_ptr<detail::VariableState> variable);

  /// In the order of their creation.
  const std::vector<std::shared_ptr<detail::VariableState>>& variables() const { return variables_; }

  bool has_unsealed() const { return sealed_ < variables_.size(); }

  /// Lays the unsealed variables out, in reverse order of creation (about the order in which a backward pass finishes),
  /// and copies their initial values. Returns the flat values of what was laid out.
  std::vector<TensorView> seal();

  /// The flat values of all mirrored variables that are sealed.
  std::vector<TensorView> mirrored_values() const;

  /// A whole number that optimizers keep besides their slots, such as how many steps they made; made, as 0, when first
  /// asked for. The reference stays valid.
  std::int64_t& counter(std::string_view name);

  /// What that counter says, and 0 where there is none.
  std::int64_t counted(std::string_view name) const;

  /// All of the optimizers' state that there is: what each slot keeps for each variable, in the order of their
  /// creation, and then the counters.
  std::vector<OptimizerState> optimizer_state() const;

  /// The same as few pieces of flat memory.
  std::vector<TensorView> optimizer_values() const;

  /// Where the gradient of a trainable variable is to be written. ContextError before it is sealed.
  TensorView gradient(const Variable& variable) const;

  /// The variables as ranges of flat memory, as few as there are gaps between them, in the order of memory.
  std::vector<FlatRange> ranges(std::span<const Variable> variables) const;

 private:
  Stream* stream_;
  std::vector<std::shared_ptr<detail::VariableState>> variables_;
  std::vector<std::shared_ptr<detail::StoreSegment>> segments_;
  std::map<std::string, Tensor, std::less<>> counters_;  ///< i64[], on the host
  std::size_t sealed_ = 0;
};

}  // namespace lockstep
