// What code of several shards finds in the same place, and each must find as it has left it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <ATen/core/Generator.h>

#include <lockstep/core/order/range.hpp>

#include "torch/backward_pass.hpp"

namespace lockstep::libtorch {

/// A module's buffers, torch's random numbers, the `.grad` of leaves that nobody trains, and the passes that are open.
/// A shard begins with the buffers as they are, and with random numbers of its number and the caller's state.
class TurnState {
 public:
  /// `owners` are the modules whose buffers those are. All arguments must outlive this object.
  TurnState(Range shards, const ModuleList& owners, TorchDevice& device);
  TurnState(const TurnState&) = delete;
  TurnState& operator=(const TurnState&) = delete;

  /// As take_back. The caller's random numbers continue by one, on every rank: the next step draws others.
  ~TurnState();

  /// From here on shard number `shard`, counted from the first, finds what it has left.
  void give_to(std::size_t shard);

  /// From here on the caller does.
  void take_back() { give_to(held_.size() - 1); }

  /// From here on it holds for these, too.
  void include(std::span<const at::Tensor> leaves, std::span<ReplicatedModule::Impl* const> modules);

 private:
  struct Held {
    std::vector<at::Tensor> random, buffers, gradients;
    std::vector<BufferPlaces> places;  ///< of the buffers, by module
    std::vector<ReplicatedModule::Impl::Pass*> passes;
  };

  void save(Held& held);
  void load(Held& held);

  const ModuleList& owners_;
  std::vector<ModuleBuffer*> buffers_;
  std::vector<at::Generator> generators_;
  std::vector<at::Tensor> leaves_;
  std::vector<ReplicatedModule::Impl*> modules_;
  std::vector<Held> held_;  ///< by shard, and at the end the caller's
  std::size_t current_;
};

}  // namespace lockstep::libtorch
