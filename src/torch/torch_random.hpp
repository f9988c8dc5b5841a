// The random numbers that torch draws where a program names no generator.
#pragma once

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

/// While one lives, torch may draw; afterwards its random numbers continue where they were.
class KeptRandom {
 public:
  explicit KeptRandom(TorchDevice& device);
  KeptRandom(const KeptRandom&) = delete;
  KeptRandom& operator=(const KeptRandom&) = delete;
  ~KeptRandom();

  /// From here on torch draws the numbers of this seed.
  void seed(std::uint64_t seed);

 private:
  std::vector<at::Generator> generators_;
  std::vector<at::Tensor> states_;
};

}  // namespace lockstep::libtorch
