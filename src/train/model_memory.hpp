// Whether a model fits into the memory of the device that it is trained on.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <lockstep/train/training.hpp>

namespace lockstep {

/// Numbers of elements. Not integers: they may be anything.
struct ModelSize {
  double weights = 0;
  double activations = 0;  ///< of one shard, as far as they count
};

/// The memory that one rank's model may fill.
struct Room {
  double bytes = 0;
  std::string_view owner;  ///< "this host", "this GPU"
};

/// That of the process's device of `kind`.
Room room_on(DeviceKind kind);

/// ConfigError where there is less room than one rank needs: a system may promise memory, and kill ranks that use it.
/// `what` names the options that the size comes from, and `expected` says what to do about it.
void require_memory(const TrainingOptions& options, const ModelSize& size, const Room& room, const std::string& what,
                    const std::string& expected);

}  // namespace lockstep
