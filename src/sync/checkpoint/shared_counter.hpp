// Checkpoints of releases whose optimizers counted their steps together, unless a program named them.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "sync/checkpoint/tensor_file.hpp"

namespace lockstep {

/// What becomes of "optimizer_1@steps", "optimizer_2@steps", … where a file has none of them but "optimizer@steps":
/// they go on from its steps, as the learning rate did. For the one rank that touches files.
class SharedCounter {
 public:
  /// Takes the counters that the file lacks out of `wanted`. `has` says whether it has an entry of that name, and is
  /// called only if `wanted` has several such counters.
  void take_missing(std::vector<NamedTensor>& wanted, const std::function<bool(std::string_view)>& has);

  /// After the rest was restored: sets the counters that were taken. If there are any, warns.
  void restore(std::string_view checkpoint) const;

 private:
  TensorView steps_;  ///< the shared one
  std::vector<NamedTensor> missing_;
};

}  // namespace lockstep
