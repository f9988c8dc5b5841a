// liblockstep-c.so, for whoever loads it.
#include "core/base/loaded_part.hpp"

static const lockstep::LoadedPart in_c{"liblockstep-c.so", LOCKSTEP_VERSION};
