// The memory of a strategy's variables: flat buffers. A variable, its gradient and its slots have the same offset.
//
//   const auto w = strategy.create_variable({.name = "w"}, [] { return Tensor::zeros(DType::f32, {3}); });
//   strategy.seal();                                           // lays out the variables
//   const TensorView gradient = strategy.store().gradient(w);  // what is written here is reduced without a copy
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
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
class LiveOptimizers;
struct OptimizerState;
struct Sharding;
/// A piece of a store's memory.
struct StoreSegment;
class ExternalValues;
using AllExternalValues = std::vector<std::weak_ptr<ExternalValues>>;  ///< in the order in which they came

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
    void values_changed() const;

    /// The stream for work on the range.
    Stream& stream() const;

    /// Whether `rank` updates the variables and has their slots. True also where the ranks share the update in slices.
    bool is_held_by(int rank) const;

    /// The same range of the optimizer slot `name`, which is created as zeros on first use. Call it only on a rank that
    /// holds the range. InvalidArgument if the ranks share the update and the range is not in a slice of this rank.
    TensorView slot(std::string_view name) const;

    /// Creates the slot as zeros where `rank` holds some of it; else without memory, so that all list the same state.
    void make_slot(std::string_view name, int rank) const;
  };

  /// Variables live in the memory of the stream's device. That device and `stream` must outlive every variable.
  explicit VariableStore(Stream& stream = Stream::host()) : stream_{&stream} {}

  Stream& stream() const { return *stream_; }

  /// An integer of an optimizer, such as its number of steps, at first 0. The reference is valid as long as the store.
  std::int64_t& counter(std::string_view name);

  /// The value of that counter, or 0 if there is none.
  std::int64_t counted(std::string_view name) const;

  /// Where to write a variable's gradient. ContextError before it is sealed; InvalidArgument if it is not trainable.
  TensorView gradient(const Variable& variable, Here here = Here::current()) const;

  /// The variables as ranges of flat memory, as few as possible, in memory order. ContextError unless all are sealed.
  std::vector<FlatRange> ranges(std::span<const Variable> variables, Here here = Here::current()) const;

 private:
  friend struct detail::Inside<VariableStore>;
  struct Layout;

  std::string unique_name(const std::string& asked) const;
  void add(std::shared_ptr<detail::VariableState> variable);
  std::vector<std::size_t> gradient_bytes() const;
  std::vector<TensorView> seal(std::vector<Buffer> gradients);
  void reallocate_gradients();
  std::vector<TensorView> mirrored_values() const;
  std::map<int, std::vector<TensorView>> held_values() const;
  std::vector<detail::OptimizerState> optimizer_state() const;
  std::vector<TensorView> optimizer_values() const;
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
