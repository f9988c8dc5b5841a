#include "train/model_memory.hpp"

#include <fmt/format.h>

#include <lockstep/base/error.hpp>

#include "train/optimizer_choice.hpp"

namespace lockstep {

Room room_on(DeviceKind kind) {
  return {.bytes = static_cast<double>(memory_bytes(kind)),
          .owner = kind == DeviceKind::cuda ? "this GPU" : "this host"};
}

void require_memory(const TrainingOptions& options, const ModelSize& size, const Room& room, const std::string& what,
                    const std::string& expected) {
  // The variables, their gradients, and the sum of those over shards. Micro-batches and optimizers need more copies.
  const double copies = 3 + (options.accumulate > 1 ? 1 : 0) + slots_of(*options.optimizer);
  constexpr double gib = 1 << 30;
  const double needed = (copies * size.weights + size.activations) * static_cast<double>(size_of(options.dtype));
  if (needed > room.bytes)
    throw ConfigError{fmt::format(
        "{}: a model of {:.0f} weights needs {:.1f} GiB or more on each rank, and {} has {:.1f} GiB; expected {}", what,
        size.weights, needed / gib, room.owner, room.bytes / gib, expected)};
}

}  // namespace lockstep
