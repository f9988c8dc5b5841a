#include <lockstep/core/base/version.hpp>

#include "commit.hpp"

namespace lockstep {

std::string version() {
  return "lockstep " LOCKSTEP_VERSION "\ncommit " LOCKSTEP_COMMIT "\nMPI " LOCKSTEP_MPI "\noneDNN " LOCKSTEP_ONEDNN
         "\nCUDA " LOCKSTEP_CUDA;
}

}  // namespace lockstep
