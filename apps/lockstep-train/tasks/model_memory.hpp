// Whether a model fits into the memory of the device that trains it.
#pragma once

#include <cstdint>
#include <string>

#include "apps/lockstep-train/options/training_options.hpp"

namespace lockstep {

/// Numbers of elements. Not integers, because they may exceed any integer type.
struct ModelSize {
  double weights = 0;
  double activations = 0;  ///< for one shard; only those that matter
  int shards_at_once = 1;  ///< that a rank computes together, each with activations and gradients of its own
  double other_bytes = 0;  ///< of what else matters, whatever its type
};

/// The memory that one rank's model may fill.
struct Room {
  double bytes = 0;
  int ranks = 1;                        ///< of the job
  std::string owner;                    ///< "this GPU", "each of the 2 ranks of this host"
  DeviceKind device = DeviceKind::cpu;  ///< whose memory it is
  double optimizer_state = 1;           ///< the part that one rank keeps
};

/// LOCAL. The memory of this process's device, which the ranks of a node share if that is the host.
Room room_on(Strategy& strategy);

/// LOCAL. ConfigError if one rank needs more than `room`: the system may promise the memory anyway, and then kill ranks
/// that use it. `what` names the options that the size comes from, and `expected` says what to do about it.
void require_memory(const TrainingOptions& options, const ModelSize& size, const Room& room, const std::string& what,
                    const std::string& expected);

}  // namespace lockstep
