// The numbers that a model computes with.
#pragma once

#include <cstdint>

namespace lockstep::nn {

/// `full`: everything is of the type of the variables. `bf16`: activations, their gradients and the weights that
/// products read are bf16, while the variables themselves, their gradients, biases, norms, statistics, losses and all
/// sums stay f32 (Micikevicius et al.: "Mixed precision training", 2018; bf16 has f32's range and so needs no scaling
/// of the loss). The weights of products are read from a copy that follows the variables (Variable::for_reading).
enum class Precision : std::uint8_t { full, bf16 };

}  // namespace lockstep::nn
