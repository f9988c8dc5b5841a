// The environment variable LOCKSTEP_FAULT, by which a training fails on purpose.
#pragma once

#include "core/base/parts.hpp"

namespace lockstep {

/// Its text; null if it is not set.
const char* fault_variable();

/// The same for code that injects the fault.
LOCKSTEP_PARTS_API const char* read_fault_variable();

/// Whether nothing has injected the fault that is set: true once for each process.
bool take_unread_fault();

}  // namespace lockstep
