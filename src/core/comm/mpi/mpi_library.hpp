// Which MPI this is.
#pragma once

#include <string>

#include "core/base/parts.hpp"

namespace lockstep {

/// What MPI_Get_library_version says, also before MPI starts.
std::string mpi_library();

/// Its first words, such as "Open MPI v4.1.4", if this process has started MPI; else empty.
LOCKSTEP_PARTS_API std::string name_of_started_mpi();

}  // namespace lockstep
