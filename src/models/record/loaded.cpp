// liblockstep-models.so, for whoever loads it.
#include "core/base/loaded_part.hpp"

static const lockstep::LoadedPart models{"liblockstep-models.so", LOCKSTEP_VERSION};
