// The memory of a strategy's variables: flat buffers. A variable, its gradient and its slots have the same offset.
//
//   const auto w = strategy.create_variable({.name = "w"}, [] { return Tensor::zeros(DType::f32, {3}); });
//   strategy.seal();                                           // lays out the variables
//   const TensorView gradient = strategy.store().gradient(w);  // what is written here is reduced without a copy
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <lockstep/core/base/export.hpp>
#include <lockstep/sync/strategy/variable.hpp>

namespace lockstep {

class Strategy;
class VariableStore;

namespace detail {

class FitProgress;
class HeldSlices;
class LiveOptimizers;
struct Sharding;
class ExternalValues;
using AllExternalValues = std::vector<std::weak_ptr<ExternalValues>>;  ///< in the order in which they came

/// A copy of flat values, rounded to bf16 (Variable::for_reading). It is made on first use. It becomes stale when the
/// values may be written, and is rounded again when it is next read. It is never saved, sent or attested.
class LOCKSTEP_API WorkingCopy {
 public:
  /// LOCAL. Returns the copy of `values`, which is made or rounded again first if it is stale: on a GPU by work on
  /// `stream`. Several threads may call this at the same time. InvalidArgument unless the values are f32.
  TensorView of(const TensorView& values, Stream& stream);

  void make_stale() { fresh_ = false; }

  /// Call after the elements from `first` on have changed to `values`. Rounds these alone, unless the copy is stale.
  void refresh(const TensorView& values, std::int64_t first, Stream& stream);

 private:
  std::mutex mutex_;
  Tensor copy_;
  std::atomic<bool> fresh_ = false;
};

/// Variables of the same kind, dtype and trainability that were sealed together, as flat buffers.
struct StoreSegment {
  Stream* stream;
  DType dtype;
  bool trainable;
  Variable::Synchronization synchronization;
  std::int64_t count;
  Tensor values;
  Tensor gradients;                     ///< empty if not trainable
  std::map<std::string, Tensor> slots;  ///< by name; each made on first use, and empty where another rank holds it
  std::optional<int> holder = {};       ///< as in VariableState
  /// If the ranks share the update: which slices each has. Then `slots` have this rank's alone, one after the other.
  std::shared_ptr<const HeldSlices> slices = {};
  std::shared_ptr<WorkingCopy> working_copy = std::make_shared<WorkingCopy>();
};

struct VariableState {
  std::string name;  ///< Variable::name
  Shape shape;
  DType dtype;
  bool trainable;
  Variable::Synchronization synchronization;  ///< on_write or on_read
  Variable::Aggregation aggregation;
  std::optional<int> holder = {};  ///< the only rank that updates it and has its slots; empty: every rank
  bool saved = true;               ///< whether checkpoints and files of weights hold it
  const VariableStore* owner;      ///< the store of the strategy that made it; only compared, never followed
  std::shared_ptr<AllExternalValues> external_values = {};  ///< of that store
  std::shared_ptr<Strategy*> strategy;                      ///< where that strategy is now; holds null once it is gone
  Tensor initial;                                           ///< until the variable is sealed
  std::shared_ptr<StoreSegment> segment;                    ///< once it is sealed
  std::int64_t offset = 0;                                  ///< within the segment, in elements
};

}  // namespace detail

/// The variables of one strategy. Every method is LOCAL: the strategy makes the agreements.
class LOCKSTEP_API VariableStore {
 public:
  /// Alignment of every view into flat memory.
  static constexpr std::size_t alignment_bytes = 256;

  /// Adjacent variables as one range of flat memory. The padding between them is zero in values, gradients and slots.
  struct FlatRange {
    TensorView values;     ///< after writing them, call values_changed
    TensorView gradients;  ///< empty if the variables are not trainable
    detail::StoreSegment* segment;
    std::int64_t first;  ///< the start of the range within the segment, in elements

    /// LOCAL. Brings the variables' copies for reading up to date with `values` (Variable::for_reading).
    void values_changed() const { segment->working_copy->refresh(values, first, *segment->stream); }

    /// The stream for work on the range.
    Stream& stream() const { return *segment->stream; }

    /// Whether `rank` updates the variables and has their slots. True also where the ranks share the update in slices.
    bool is_held_by(int rank) const { return segment->holder.value_or(rank) == rank; }

    /// The same range of the optimizer slot `name`, which is created as zeros on first use. Call it only on a rank that
    /// holds the range. InvalidArgument if the ranks share the update and the range is not in a slice of this rank.
    TensorView slot(std::string_view name) const;

    /// Creates the slot as zeros where `rank` holds some of it; else without memory, so that all list the same state.
    void make_slot(std::string_view name, int rank) const;
  };

  /// A piece of optimizer state: one slot's part for one variable, or a counter.
  struct OptimizerState {
    std::string name;                ///< "w@momentum", "optimizer@steps"
    TensorView value;                ///< without memory on ranks that do not hold it
    std::optional<int> holder = {};  ///< the only rank that holds it; empty: every rank
    /// Where its elements belong in a slot of which every rank has slices; `value` is then without memory.
    struct InSlices {
      detail::StoreSegment* segment;
      std::string slot;
      std::int64_t first;  ///< within the segment, in elements
    };
    std::optional<InSlices> in_slices = {};
  };

  /// Variables live in the memory of the stream's device. That device and `stream` must outlive every variable.
  explicit VariableStore(Stream& stream = Stream::host()) : stream_{&stream} {}

  Stream& stream() const { return *stream_; }

  /// The Variable::name of the next variable that asks for the name `asked`.
  std::string unique_name(const std::string& asked) const;

  void add(std::shared_ptr<detail::VariableState> variable);

  /// In order of creation.
  const std::vector<std::shared_ptr<detail::VariableState>>& variables() const { return variables_; }

  bool has_unsealed() const { return sealed_ < variables_.size(); }

  /// The sizes, in bytes, of the flat buffers for gradients that the next `seal` needs. The same on every rank.
  std::vector<std::size_t> gradient_bytes() const;

  /// Lays out the unsealed variables in reverse order of creation (roughly the order in which a backward pass finishes)
  /// and copies their initial values. Returns the flat values of the new memory. `gradients` are zeroed buffers of the
  /// sizes of `gradient_bytes`, which the variables keep; the store allocates those that are empty or missing.
  std::vector<TensorView> seal();
  std::vector<TensorView> seal(std::vector<Buffer> gradients);

  /// Moves the gradients of the last `seal` to memory that the store allocates, and resets them to zero.
  void reallocate_gradients();

  /// The flat values, for writing, of the sealed mirrored variables that every rank updates.
  std::vector<TensorView> mirrored_values() const;

  /// The same of the variables that one rank alone updates. The key is that rank.
  std::map<int, std::vector<TensorView>> held_values() const;

  /// An integer of an optimizer, such as its number of steps, at first 0. The reference is valid as long as the store.
  std::int64_t& counter(std::string_view name);

  /// The value of that counter, or 0 if there is none.
  std::int64_t counted(std::string_view name) const;

  /// All optimizer state: the slots of variables in order of creation, the counters, then that of other libraries.
  std::vector<OptimizerState> optimizer_state() const;

  /// The same state as a few pieces of flat memory, except what one rank alone holds and what is held in slices.
  std::vector<TensorView> optimizer_values() const;

  /// Where to write a variable's gradient. ContextError before it is sealed; InvalidArgument if it is not trainable.
  TensorView gradient(const Variable& variable, Here here = Here::current()) const;

  /// The variables as ranges of flat memory, as few as possible, in memory order. ContextError unless all are sealed.
  std::vector<FlatRange> ranges(std::span<const Variable> variables, Here here = Here::current()) const;

 private:
  friend struct detail::Inside<VariableStore>;
  struct Layout;

  void share_updates(detail::Sharding sharding);
  void add_external_values(const std::shared_ptr<detail::ExternalValues>& values);
  std::vector<std::shared_ptr<detail::ExternalValues>> external_values() const;
  void bring_values_home() const;
  void bring_home() const;
  void written() const;
  Layout layout() const;
  void share_updates_of(const Layout& layout) const;

  Stream* stream_;
  std::vector<std::shared_ptr<detail::VariableState>> variables_;
  std::set<std::string> names_;  ///< of the variables
  std::vector<std::shared_ptr<detail::StoreSegment>> segments_;
  std::map<std::string, Tensor, std::less<>> counters_;  ///< i64[], on the host
  std::shared_ptr<detail::LiveOptimizers> live_optimizers_;
  std::shared_ptr<detail::FitProgress> fit_progress_;
  std::shared_ptr<detail::AllExternalValues> external_values_ = std::make_shared<detail::AllExternalValues>();
  std::size_t sealed_ = 0;
  std::size_t sealed_segments_ = 0;                   ///< before the last `seal`
  std::shared_ptr<const detail::Sharding> sharding_;  ///< null: every rank updates everything
};

}  // namespace lockstep
