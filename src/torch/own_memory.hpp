// Tensors that share memory. A replicated module's parameters and buffers each get a place of their own, in which they
// no longer follow what they shared memory with.
#pragma once

#include <vector>

#include "torch/replica.hpp"

namespace lockstep::libtorch {

/// InvalidArgument, which names both, if an element of one of these tensors is also an element of another one, or of a
/// parameter or buffer of `others`. Tensors that lie between each other's elements are free. One tensor under two names
/// among the parameters, or among the buffers, is in its list once.
void require_own_memory(const NamedTensors& parameters, const NamedTensors& buffers,
                        const std::vector<ReplicatedModule::Impl*>& others);

}  // namespace lockstep::libtorch
