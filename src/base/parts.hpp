// What libraries of lockstep use of each other's inside.
#pragma once

#include <lockstep/base/export.hpp>

/// As LOCKSTEP_API, for what liblockstep-cuda.so and liblockstep-torch.so need of another library although it is not
/// public. scripts/check-symbols has the list.
#define LOCKSTEP_PARTS_API LOCKSTEP_API
