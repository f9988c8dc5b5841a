// What a checkpoint holds of a strategy.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include <lockstep/sync/strategy/strategy.hpp>
#include <lockstep/sync/strategy/variable_store.hpp>

#include "sync/checkpoint/tensor_file.hpp"
#include "sync/strategy/variable_state.hpp"

namespace lockstep {

/// The values of a strategy's variables, and the state of its optimizers. Make it in cross-replica context.
class StrategyValues {
 public:
  /// LOCAL, before an agreement. ContextError if a variable has no memory yet; what VariableStore::bring_home throws,
  /// and then a PeerError on the other ranks. `strategy` must outlive it.
  StrategyValues(Strategy& strategy, const Here& here);

  /// COLL, directly after an agreement. The values of the sync-on-read variables, as a read combines them, and the
  /// optimizer state that one rank alone holds, or of which each has slices. The mean of equal values is that value,
  /// whatever the number of ranks.
  void combine(const Here& here);

  /// LOCAL, on the chief. The variables, and the optimizers' state: where their values lie, for a file to be written or
  /// read.
  std::vector<NamedTensor> variables() const;
  std::vector<NamedTensor> optimizer_state() const;

  /// LOCAL. Copies host tensors to where `homes` lie.
  void set(std::span<const NamedTensor> homes, std::span<const Tensor> values);

  /// COLL. The values that `set` gave the chief, on every rank.
  void spread(const Here& here);

 private:
  void combine_sync_on_read(const Here& here);
  void gather_held(const Here& here);
  void spread_held(const Here& here);
  void gather_slices(const Here& here);
  void spread_slices(const Here& here);

  /// A slot of which every rank has slices.
  struct SlicedSlot {
    detail::StoreSegment* segment;
    std::string name;
    std::string state;  ///< the name of its part for the first variable
    Tensor whole;       ///< on the host of the chief
  };
  /// What all ranks are about to send each other of them.
  std::string names_of_sliced() const;
  const SlicedSlot& slot_of(const detail::OptimizerState::InSlices& state) const;

  Strategy& strategy_;
  std::vector<Variable> variables_;           ///< in the order of their creation
  std::vector<Variable> sync_on_read_;        ///< of these
  std::vector<Tensor> combined_;              ///< their values
  std::vector<detail::OptimizerState> held_;  ///< state held only by a rank other than the chief
  std::vector<Tensor> of_held_;               ///< its values, on the host of the chief
  std::vector<SlicedSlot> sliced_;
  bool held_was_set_ = false, sliced_was_set_ = false;  ///< on the chief
};

/// COLL. Does `work` on the chief while the others wait. If it fails there, it fails on all.
void on_chief(Strategy& strategy, const Here& here, const std::function<void()>& work);

}  // namespace lockstep
