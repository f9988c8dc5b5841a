// The memory that the model of one rank may fill.
#include <catch2/catch.hpp>

#include <lockstep/job/sim/sim.hpp>

#include "apps/lockstep-train/tasks/model_memory.hpp"
#include "core/device/device.hpp"

using namespace lockstep;

TEST_CASE("the ranks of a host share its memory, a host by itself") {
  const auto all = static_cast<double>(memory_bytes(DeviceKind::cpu));
  // Two nodes: ranks 0 to 2, and rank 3 alone.
  sim::run({.ranks = 4, .ranks_per_node = 3}, [&](Strategy& strategy, int rank) {
    const Room room = room_on(strategy);
    CHECK(room.bytes == (rank < 3 ? all / 3 : all));
    CHECK(room.owner == (rank < 3 ? "each of the 3 ranks of this host" : "this host"));
    CHECK(room.ranks == 4);
  });
}

TEST_CASE("on nodes of unequal size, only some ranks share an optimizer") {
  const ReductionOptions reductions{.kind = ReductionOptions::Kind::hierarchical, .shard_optimizer = true};
  sim::run({.ranks = 4, .ranks_per_node = 3, .reductions = reductions},
           [](Strategy& strategy, int) { CHECK(room_on(strategy).optimizer_state == 0.5); });
}

TEST_CASE("ranks that share an optimizer keep a part of its state each") {
  sim::run({.ranks = 4, .reductions = {.shard_optimizer = true}}, [&](Strategy& strategy, int) {
    const Room room = room_on(strategy);
    CHECK(room.optimizer_state == 0.25);
    TrainingOptions options;
    options.optimizer = OptimizerKind::adamw;
    options.dtype = DType::f32;
    // Weights, gradients and their sum over shards, and half of a copy: 14 bytes for each weight.
    const double weights = 1e9;
    CHECK_NOTHROW(require_memory(options, {.weights = weights},
                                 {.bytes = 14.1e9, .owner = "z", .optimizer_state = 0.25}, "x", "y"));
    CHECK_THROWS(require_memory(options, {.weights = weights}, {.bytes = 13.9e9, .owner = "z", .optimizer_state = 0.25},
                                "x", "y"));
  });
}
