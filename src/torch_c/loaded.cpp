// liblockstep-torch-c.so, for whoever loads it.
#include "core/base/loaded_part.hpp"

static const lockstep::LoadedPart torch_in_c{"liblockstep-torch-c.so", LOCKSTEP_VERSION};
