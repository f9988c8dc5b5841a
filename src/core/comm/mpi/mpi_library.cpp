#include "core/comm/mpi/mpi_library.hpp"

#include <array>
#include <sstream>

#include <mpi.h>

#include "core/comm/mpi/mpi_handle.hpp"

namespace lockstep {

std::string mpi_library() {
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
  int length = 0;
  check_mpi(MPI_Get_library_version(text.data(), &length), "MPI_Get_library_version");
  return {text.data(), static_cast<std::size_t>(length)};
}

std::string name_of_started_mpi() {
  int started = 0;
  check_mpi(MPI_Initialized(&started), "MPI_Initialized");
  if (!started) return {};
  const std::string library = mpi_library();
  // "Open MPI v4.1.4, package: …", "MPICH Version:      4.0.2\n…".
  std::istringstream words{library.substr(0, library.find_first_of(",\n"))};
  std::string name;
  for (std::string word; words >> word;) name += (name.empty() ? "" : " ") + word;
  return name;
}

}  // namespace lockstep
