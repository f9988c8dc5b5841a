// liblockstep-torch-fortran.so, for whoever loads it.
#include "core/base/loaded_part.hpp"

static const lockstep::LoadedPart torch_in_fortran{"liblockstep-torch-fortran.so", LOCKSTEP_VERSION};
