#include "torch/torch_random.hpp"

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

void set_seed(at::Generator& generator, std::uint64_t seed) {
  const std::lock_guard lock{generator.mutex()};
  generator.set_current_seed(seed);
}

}  // namespace lockstep::libtorch
