// What variables are made of: the state that the handles of one share, and the memory that it has with others.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include <lockstep/core/tensor/tensor.hpp>
#include <lockstep/sync/strategy/variable.hpp>
#include <lockstep/sync/strategy/variable_store.hpp>

namespace lockstep::detail {

class HeldSlices;

/// A copy of flat values, rounded to bf16 (Variable::for_reading). It is made on first use. It becomes stale when the
/// values may be written, and is rounded again when it is next read. It is never saved, sent or attested.
class WorkingCopy {
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

/// A piece of optimizer state: one slot's part for one variable, or a counter.
struct OptimizerState {
  std::string name;                ///< "w@momentum", "optimizer@steps"
  TensorView value;                ///< without memory on ranks that do not hold it
  std::optional<int> holder = {};  ///< the only rank that holds it; empty: every rank
  /// Where its elements belong in a slot of which every rank has slices; `value` is then without memory.
  struct InSlices {
    StoreSegment* segment;
    std::string slot;
    std::int64_t first;  ///< within the segment, in elements
  };
  std::optional<InSlices> in_slices = {};
};

}  // namespace lockstep::detail
