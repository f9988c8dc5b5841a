// Private names that lockstep's libraries use of each other.
#pragma once

#include <lockstep/core/base/export.hpp>

/// As LOCKSTEP_API, for names that are not public, but that liblockstep-c.so, -cuda.so, -models.so or -torch.so needs
/// of another library. scripts/check-symbols has the list.
#define LOCKSTEP_PARTS_API LOCKSTEP_API
