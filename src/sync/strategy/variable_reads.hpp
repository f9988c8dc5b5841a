// Reading variables as one value.
#pragma once

#include <vector>

#include <lockstep/core/tensor/tensor.hpp>
#include <lockstep/sync/strategy/variable.hpp>

#include "sync/strategy/context_stack.hpp"

namespace lockstep::detail {

/// The values as host tensors, in the order of the variables. COLL if any is sync-on-read, with one agreement for all
/// of those. Errors, which begin with `call`, as those of SyncOnReadVariable::read.
std::vector<Tensor> read_variables(Strategy& strategy, const Call& call, const VariableList& variables);

}  // namespace lockstep::detail
