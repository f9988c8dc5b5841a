// A liblockstep-models.so of another version of lockstep.
#include "core/base/loaded_part.hpp"

static const lockstep::LoadedPart models{"liblockstep-models.so", "0.0.1-other"};
