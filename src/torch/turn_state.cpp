#include "torch/turn_state.hpp"

#include <algorithm>
#include <utility>

#include <ATen/Functions.h>
#include <fmt/format.h>

#include "core/base/digest.hpp"
#include "torch/torch_random.hpp"

namespace lockstep::libtorch {
namespace {

/// A generator's state is on the host, whatever its device.
std::uint64_t digest_of_state(const at::Tensor& state) {
  return digest_of(std::span{static_cast<const std::byte*>(state.data_ptr()), state.nbytes()});
}

}  // namespace

TurnState::TurnState(Range shards, const ModuleList& owners, TorchDevice& device)
    : owners_{owners},
      generators_{default_generators(device)},
      held_(static_cast<std::size_t>(shards.size()) + 1),
      current_{held_.size() - 1} {
  for (ReplicatedModule::Impl* const owner : owners_)
    for (ModuleBuffer& buffer : owner->buffers) buffers_.push_back(&buffer);
  save(held_.back());
  for (std::int64_t shard = shards.first; shard < shards.last; ++shard) {
    Held& held = held_[static_cast<std::size_t>(shard - shards.first)];
    for (std::size_t i = 0; i < generators_.size(); ++i) {
      const std::uint64_t base = digest_of_state(held_.back().random[i]);
      set_seed(generators_[i], digest_of(fmt::format("{} {}", base, shard)));
      held.random.push_back(state_of(generators_[i]));
    }
    for (const ModuleBuffer* const buffer : buffers_) held.buffers.push_back(buffer->tensor.detach().clone());
    held.places.resize(owners_.size());
  }
  load(held_.back());
}

TurnState::~TurnState() {
  take_back();
  // Whether or not a shard of this rank has drawn, as another rank's may have.
  for (const at::Generator& each : generators_) (void)at::rand({1}, at::TensorOptions{}.device(each.device()));
}

void TurnState::give_to(std::size_t shard) {
  if (shard == current_) return;
  save(held_[current_]);
  load(held_[shard]);
  current_ = shard;
}

void TurnState::include(std::span<const at::Tensor> leaves, std::span<ReplicatedModule::Impl* const> modules) {
  take_back();
  for (const at::Tensor& leaf : leaves)
    if (!holds(leaves_, leaf)) leaves_.push_back(leaf);
  for (ReplicatedModule::Impl* const module : modules)
    if (std::ranges::find(modules_, module) == modules_.end()) modules_.push_back(module);
  for (Held& held : held_) {
    held.gradients.clear();
    for (const at::Tensor& leaf : leaves_) held.gradients.push_back(leaf.grad());
    held.passes.assign(modules_.size(), nullptr);
  }
}

void TurnState::save(Held& held) {
  held.random.clear();
  for (at::Generator& generator : generators_) held.random.push_back(state_of(generator));
  held.places.clear();
  for (const ReplicatedModule::Impl* const owner : owners_) held.places.push_back(owner->parts.exchange_buffers({}));
  held.buffers.clear();
  for (const ModuleBuffer* const buffer : buffers_) held.buffers.push_back(buffer->tensor.detach());
  for (std::size_t i = 0; i < leaves_.size(); ++i) held.gradients[i] = leaves_[i].grad();
  for (std::size_t i = 0; i < modules_.size(); ++i) held.passes[i] = modules_[i]->exchange_pass(nullptr);
}

/// Buffers lie in memory of each shard's own, so nothing is copied. Each also has its own number of versions, by which
/// autograd sees whether one that it needs was overwritten.
void TurnState::load(Held& held) {
  for (std::size_t i = 0; i < generators_.size(); ++i) set_state(generators_[i], held.random[i]);
  for (std::size_t i = 0; i < owners_.size(); ++i) (void)owners_[i]->parts.exchange_buffers(held.places[i]);
  for (std::size_t i = 0; i < buffers_.size(); ++i) {
    at::Tensor& tensor = buffers_[i]->tensor;
    tensor.set_data(held.buffers[i]);
    tensor.unsafeGetTensorImpl()->set_version_counter(held.buffers[i].unsafeGetTensorImpl()->version_counter());
  }
  for (std::size_t i = 0; i < leaves_.size(); ++i) leaves_[i].mutable_grad() = held.gradients[i];
  for (std::size_t i = 0; i < modules_.size(); ++i) (void)modules_[i]->exchange_pass(held.passes[i]);
}

}  // namespace lockstep::libtorch
