// The models that a C program has loaded and not freed.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include <torch/optim/optimizer.h>

#include <lockstep/core/base/here.hpp>
#include <lockstep/core/order/range.hpp>
#include <lockstep/sync/checkpoint/checkpoint_manager.hpp>
#include <lockstep/sync/strategy/strategy.hpp>
#include <lockstep/torch.h>
#include <lockstep/torch/replicated_optimizer.hpp>
#include <lockstep/torch/script.hpp>

#include "c/live_groups.hpp"
#include "torch_c/training.hpp"

/// Members in order of acquisition; they are destroyed in reverse.
struct lockstep_model {
  /// COLL, as ReplicatedModule and ReplicatedOptimizer.
  lockstep_model(lockstep_group& ranks, lockstep::Strategy own, torch::jit::Module module, lockstep::in_c::Training how,
                 lockstep::Here here);
  lockstep_model(const lockstep_model&) = delete;
  lockstep_model& operator=(const lockstep_model&) = delete;
  ~lockstep_model() { --group.models; }

  lockstep_group& group;
  lockstep::Strategy strategy;
  lockstep::in_c::Training training;
  lockstep::libtorch::DataParallel<torch::jit::Module> net;
  std::unique_ptr<torch::optim::Optimizer> optimizer;
  lockstep::libtorch::ReplicatedOptimizer optimizer_state;
  at::ScalarType floats;  ///< of the parameters
  std::int64_t steps = 0;
  std::filesystem::path folder = {};  ///< of the checkpoints
  bool writes = false;                ///< it has begun to write there
  std::unique_ptr<lockstep::CheckpointManager> checkpoints = {};
};

namespace lockstep::in_c {

/// As Place, for calls that keep it. Each text is kept once, and never freed.
class KeptPlace {
 public:
  explicit KeptPlace(const char* at);

  const Here& here() const { return here_; }
  Group on(const Group& group) const { return place_.on(group); }

 private:
  Place place_;
  Here here_;
};

/// LOCAL. The model of that handle. InvalidArgument if it is none, or was freed; ContextError on another thread than
/// that of the groups.
lockstep_model& live_model(const lockstep_model* handle);

/// LOCAL. Those of this rank.
Range shards_of(lockstep_model& model);

/// LOCAL. Its handle.
lockstep_model* add_live_model(std::unique_ptr<lockstep_model> model);
std::unique_ptr<lockstep_model> take_live_model(const lockstep_model* handle);

/// LOCAL. Whether a model other than this one writes its checkpoints there.
bool another_writes(const std::filesystem::path& folder, const lockstep_model& model);

}  // namespace lockstep::in_c
