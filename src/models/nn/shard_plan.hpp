// How a model of dense layers computes a rank's shards.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <vector>

#include "models/ops/kernel_properties.hpp"

namespace lockstep::nn {

/// What one layer may compute at once while keeping the bits of one shard after the other.
struct LayerPlan {
  bool forward_at_once = true;           ///< outputs for the rows of all shards
  bool input_gradients_at_once = true;   ///< input gradients for the rows of all shards
  bool weight_gradients_at_once = true;  ///< the sum of all shards' products
};

/// The plans of a model's dense layers. The first layer needs no gradient of its inputs.
class LayerPlans {
 public:
  /// `stream` is the kernels' stream and must outlive it.
  LayerPlans(std::shared_ptr<const ops::Kernels> kernels, std::vector<ops::DenseForm> layers, Stream& stream);

  /// LOCAL. One plan for each layer, valid as long as this object. The first call for shards of this number and size
  /// tries out the kernels, which blocks the host, and logs on the chief what has to be computed shard by shard.
  /// DeviceError for kernels that do not repeat their bits.
  std::span<const LayerPlan> of(ops::RowBlocks shards);

 private:
  std::vector<LayerPlan> made_for(ops::RowBlocks shards) const;

  std::shared_ptr<const ops::Kernels> kernels_;
  std::vector<ops::DenseForm> layers_;
  Stream& stream_;
  std::map<ops::RowBlocks, std::vector<LayerPlan>> made_;
};

/// Calls `body(first, rows)` for the rows of all shards at once, or shard by shard.
template <class Body>
void for_rows(bool at_once, ops::RowBlocks shards, Body&& body) {
  if (at_once) return body(0, shards.all_rows());
  for (std::int64_t shard = 0; shard < shards.blocks; ++shard) body(shard * shards.rows, shards.rows);
}

}  // namespace lockstep::nn
