#include "torch/torch_random.hpp"

#include <cstddef>
#include <mutex>

#include <ATen/Context.h>

namespace lockstep::libtorch {

std::vector<at::Generator> default_generators(TorchDevice& device) {
  at::Context& context = at::globalContext();
  std::vector<at::Generator> generators{context.defaultGenerator(at::kCPU)};
  if (!device.device().is_cpu()) generators.push_back(context.defaultGenerator(device.device()));
  return generators;
}

at::Tensor state_of(at::Generator& generator) {
  const std::lock_guard lock{generator.mutex()};
  return generator.get_state();
}

void set_state(at::Generator& generator, const at::Tensor& state) {
  const std::lock_guard lock{generator.mutex()};
  generator.set_state(state);
}

KeptRandom::KeptRandom(TorchDevice& device) : generators_{default_generators(device)} {
  for (at::Generator& each : generators_) states_.push_back(state_of(each));
}

KeptRandom::~KeptRandom() {
  for (std::size_t i = 0; i < generators_.size(); ++i) set_state(generators_[i], states_[i]);
}

void KeptRandom::seed(std::uint64_t seed) {
  for (at::Generator& each : generators_) {
    const std::lock_guard lock{each.mutex()};
    each.set_current_seed(seed);
  }
}

}  // namespace lockstep::libtorch
