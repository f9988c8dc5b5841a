#include "apps/lockstep-train/tasks/model_memory.hpp"

#include <fmt/format.h>

#include <lockstep/base/error.hpp>

#include "apps/lockstep-train/tasks/optimizer_choice.hpp"
#include "base/element_type.hpp"
#include "device/device.hpp"
#include "reduce/cross_device_ops.hpp"
#include "strategy/replica_group.hpp"

namespace lockstep {

Room room_on(Strategy& strategy) {
  const DeviceKind device = strategy.stream().kind();
  const auto bytes = static_cast<double>(memory_bytes(device));
  const auto parts = static_cast<double>(strategy.reductions().slice_owners().size());
  const double state = strategy.store().shares_updates() ? 1 / parts : 1;
  if (device == DeviceKind::cuda)
    return {.bytes = bytes, .owner = "this GPU", .device = device, .optimizer_state = state};
  const int ranks = strategy.group().ranks_of_node();
  return {.bytes = bytes / ranks,
          .owner = ranks == 1 ? "this host" : fmt::format("each of the {} ranks of this host", ranks),
          .optimizer_state = state};
}

void require_memory(const TrainingOptions& options, const ModelSize& size, const Room& room, const std::string& what,
                    const std::string& expected) {
  // The variables, their gradients, and the sum of those over shards. Micro-batches, audits and optimizers need more
  // copies.
  const int more = options.accumulate > 1 ? 1 : 0;
  const double copies =
      3 + more + (options.audit_every ? 1 + more : 0) + slots_of(*options.optimizer) * room.optimizer_state;
  constexpr double gib = 1 << 30;
  const auto wide = static_cast<double>(size_of(*options.dtype));
  const auto narrow = static_cast<double>(size_of(DType::bf16));
  // Under bf16, products read a copy of the weights.
  const double typed = options.precision == nn::Model::Precision::bf16
                           ? (copies * wide + narrow) * size.weights + narrow * size.activations
                           : wide * (copies * size.weights + size.activations);
  const double needed = typed + size.other_bytes;
  if (needed > room.bytes)
    throw ConfigError{fmt::format(
        "{}: a model of {:.0f} weights needs {:.1f} GiB or more on each rank, and {} has {:.1f} GiB; expected {}", what,
        size.weights, needed / gib, room.owner, room.bytes / gib, expected)};
}

}  // namespace lockstep
