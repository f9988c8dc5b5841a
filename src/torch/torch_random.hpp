// The random numbers that torch draws where a program names no generator.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <ATen/core/Generator.h>

#include "torch/torch_device.hpp"

namespace lockstep::libtorch {

/// Those of the CPU, and of the device if it is another.
std::vector<at::Generator> default_generators(TorchDevice& device);

/// On the host, whatever the generator's device.
at::Tensor state_of(at::Generator& generator);
void set_state(at::Generator& generator, const at::Tensor& state);

/// From here on torch draws the numbers of this seed.
void set_seed(at::Generator& generator, std::uint64_t seed);

/// While one lives, torch may draw; afterwards its random numbers continue where they were.
class KeptRandom {
 public:
  explicit KeptRandom(TorchDevice& device) : generators_{default_generators(device)} {
    for (at::Generator& each : generators_) states_.push_back(state_of(each));
  }
  KeptRandom(const KeptRandom&) = delete;
  KeptRandom& operator=(const KeptRandom&) = delete;
  ~KeptRandom() {
    for (std::size_t i = 0; i < generators_.size(); ++i) set_state(generators_[i], states_[i]);
  }

  void seed(std::uint64_t seed) {
    for (at::Generator& each : generators_) set_seed(each, seed);
  }

 private:
  std::vector<at::Generator> generators_;
  std::vector<at::Tensor> states_;
};

}  // namespace lockstep::libtorch
