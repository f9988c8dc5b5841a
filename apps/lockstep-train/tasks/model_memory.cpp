#include "apps/lockstep-train/tasks/model_memory.hpp"

#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>

#include "apps/lockstep-train/tasks/optimizer_choice.hpp"
#include "core/base/element_type.hpp"
#include "core/device/device.hpp"
#include "sync/group/replica_group.hpp"
#include "sync/reduce/reductions.hpp"
#include "sync/strategy/inside.hpp"

namespace lockstep {

Room room_on(Strategy& strategy) {
  const DeviceKind device = strategy.stream().kind();
  const auto bytes = static_cast<double>(memory_bytes(device));
  const auto parts = static_cast<double>(inside(strategy).reductions().slice_owners().size());
  const double state = inside(strategy.store()).shares_updates() ? 1 / parts : 1;
  const int ranks = strategy.num_replicas_in_sync();
  if (device == DeviceKind::cuda)
    return {.bytes = bytes, .ranks = ranks, .owner = "this GPU", .device = device, .optimizer_state = state};
  const int here = inside(strategy).group().ranks_of_node();
  return {.bytes = bytes / here,
          .ranks = ranks,
          .owner = here == 1 ? "this host" : fmt::format("each of the {} ranks of this host", here),
          .optimizer_state = state};
}

void require_memory(const TrainingOptions& options, const ModelSize& size, const Room& room, const std::string& what,
                    const std::string& expected) {
  // The variables, the sum of their gradients over shards, and the gradients of the shards at hand. Micro-batches,
  // audits and optimizers need more copies.
  const int of_shard = options.accumulate > 1 ? 2 : 1;
  const double copies = 2 + of_shard * (size.shards_at_once + (options.audit_every ? 1 : 0)) +
                        slots_of(*options.optimizer) * room.optimizer_state;
  constexpr double gib = 1 << 30;
  const auto wide = static_cast<double>(size_of(*options.dtype));
  const auto narrow = static_cast<double>(size_of(DType::bf16));
  const double activations = size.shards_at_once * size.activations;
  // Under bf16, products read a copy of the weights.
  const double typed = options.precision == nn::Model::Precision::bf16
                           ? (copies * wide + narrow) * size.weights + narrow * activations
                           : wide * (copies * size.weights + activations);
  const double needed = typed + size.other_bytes;
  if (needed > room.bytes)
    throw ConfigError{fmt::format(
        "{}: a model of {:.0f} weights needs {:.2f} GiB or more on each rank, and {} has {:.2f} GiB; expected {}", what,
        size.weights, needed / gib, room.owner, room.bytes / gib, expected)};
}

}  // namespace lockstep
