#include "core/comm/mpi/share_memory.hpp"

#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>
#include <lockstep/core/base/log.hpp>

#include "core/base/log_settings.hpp"

namespace lockstep {

std::optional<SharedMemory> share_memory(const MpiComm& node, std::size_t bytes, SharedMemory (*create)(std::size_t)) {
  std::optional<SharedMemory> memory;
  SharedMemory::Handle handle;
  const bool first = node.rank() == 0;
  const auto attempt = [&](auto&& make) {
    try {
      memory.emplace(make());
    } catch (const CommError& error) {
      log::debug(fmt::format("no shared memory on this node: {}", error.what()));
    }
  };
  if (first)
    attempt([&] {
      SharedMemory made = create(bytes);
      made.reserve(0, bytes);
      return made;
    });
  if (memory) handle = memory->handle();
  check_mpi(MPI_Bcast(&handle, sizeof handle, MPI_BYTE, 0, node.get()), "MPI_Bcast");
  if (!first && handle.way != SharedMemory::Handle::Way::none)
    attempt([&] { return SharedMemory::open(handle, bytes); });
  int everyone = memory ? 1 : 0;
  check_mpi(MPI_Allreduce(MPI_IN_PLACE, &everyone, 1, MPI_INT, MPI_MIN, node.get()), "MPI_Allreduce");
  if (first && memory) memory->take_over();
  check_mpi(MPI_Barrier(node.get()), "MPI_Barrier");
  if (!everyone) memory.reset();
  return memory;
}

}  // namespace lockstep
