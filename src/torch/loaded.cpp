// liblockstep-torch.so, for whoever loads it.
#include "core/base/loaded_part.hpp"

static const lockstep::LoadedPart bridge{"liblockstep-torch.so", LOCKSTEP_VERSION};
