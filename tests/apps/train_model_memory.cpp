// The memory that the model of one rank may fill.
#include <catch2/catch.hpp>

#include <lockstep/sim/sim.hpp>

#include "apps/lockstep-train/tasks/model_memory.hpp"
#include "device/device.hpp"

using namespace lockstep;

TEST_CASE("the ranks of a host share its memory, a host by itself") {
  const auto all = static_cast<double>(memory_bytes(DeviceKind::cpu));
  // Two nodes: ranks 0 to 2, and rank 3 alone.
  sim::run({.ranks = 4, .ranks_per_node = 3}, [&](Strategy& strategy, int rank) {
    const Room room = room_on(strategy);
    CHECK(room.bytes == (rank < 3 ? all / 3 : all));
    CHECK(room.owner == (rank < 3 ? "each of the 3 ranks of this host" : "this host"));
  });
}
